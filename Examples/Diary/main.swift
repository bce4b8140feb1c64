// A diary that asks for a password, locks itself, and obeys its owner: the life of an app with a runtime.
//
//   Diary DIR [MANAGEMENT-FILE]       DIR: its container, made when the first password was typed
//
// A line that is typed answers the question on the screen. Without a question it is an entry; an empty line shows all entries, and
// "password" asks for another password. Other apps send files to it, which wait while it is locked.
import AppRuntime
import ExampleSupport
import Foundation

let arguments = CommandLine.arguments
guard (2...3).contains(arguments.count) else { fail("usage: Diary DIR [MANAGEMENT-FILE]", 64) }
var options = AppRuntime.Options()
options.management = arguments.count == 3 ? ManagementSource(path: arguments[2]) : nil

/// After each opening of the container: once in this process, and again whenever the keys were taken meanwhile.
@Sendable func prepare(_ container: SecureContainer, _ services: AppServices) throws {
  let files = container.files
  try files.createDirectory(atPath: "/Received", withIntermediateDirectories: true)
  try services.offer(WellKnownService.transferFile.definition, validates: true) { request in
    // A handler that was interrupted by a lock runs again: what it did before is done already.
    for path in request.attachments where files.fileExists(atPath: path) {
      try files.moveItem(atPath: path, toPath: "/Received/\(request.id)")
    }
    try await request.removeAttachments()
    say("received a file from \(request.sender)")
    return .reply()
  }
}

/// Returns the lines that a person types.
func lines() -> AsyncStream<String> {
  AsyncStream { continuation in
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      continuation.finish()
    }
  }
}

/// Prints the screen for a state. A screen that asks shows no text of the diary.
func show(_ state: Authorization) {
  switch state.presentation {
  case .app: say("-- diary")
  case .nothing: say("-- choose a password")
  case .asking(.password): say("-- password?")
  case .asking(.unlockCode): say("-- unlock code?")
  case .asking(.newPassword): say("-- the password, a space, and a new one?")
  case .asking(.nothing): say("-- closed")
  }
}

func changePassword(_ line: String, _ runtime: AppRuntime) async throws {
  let words = line.split(separator: " ", maxSplits: 1).map(String.init)
  guard words.count == 2 else { return say("the password, a space, and a new one") }
  try await runtime.changePassword(SecretBytes(utf8: words[0]), to: SecretBytes(utf8: words[1]))
  say("the password was changed")
}

/// An answer, or an entry. What is refused is said, and changes nothing.
func take(_ line: String, _ runtime: AppRuntime, _ asksForNew: inout Bool) async {
  runtime.noteActivity()
  do {
    let state = runtime.authorization
    // A lock ends the question for another password.
    if state.presentation != .app { asksForNew = false }
    switch state.presentation {
    case .nothing: try await runtime.activate(passphrase: SecretBytes(utf8: line))
    case .asking(.password): try await runtime.authorize(passphrase: SecretBytes(utf8: line))
    case .asking(.unlockCode): try await runtime.unlock(code: SecretBytes(utf8: line))
    case .asking(.newPassword): try await changePassword(line, runtime)
    case .app where asksForNew:
      asksForNew = false
      try await changePassword(line, runtime)
    case .asking(.nothing): say(state.message)
    case .app where line == "password":
      asksForNew = true
      say("-- the password, a space, and a new one?")
    case .app:
      let files = try runtime.container.files
      let old = (try? files.data(atPath: "/diary.txt")) ?? Data()
      if line.isEmpty { return say(String(decoding: old.dropLast(), as: UTF8.self)) }
      try files.write(old + Data("\(line)\n".utf8), toPath: "/diary.txt")
    }
  } catch {
    say("\(error)")
  }
}

do {
  let interruptions = interruptions()
  let typed = lines()
  let runtime = try await AppRuntime(
    Application(id: ApplicationID("com.example.diary"), name: "Diary"),
    containerAt: URL(fileURLWithPath: arguments[1]), options: options, prepare: prepare
  ) { event, state in
    // State is set before it is told.
    switch event.kind {
    case .authorized, .notAuthorized: say("* \(event.message)")
    default: say("* \(event.kind)")
    }
  }
  // Until somebody interrupts it, the input ends, or the container was destroyed.
  let (ends, end) = AsyncStream<Void>.makeStream()
  Task {
    for await _ in interruptions { end.yield() }
  }
  Task {
    var shown: Authorization.Presentation?
    for await state in runtime.authorizationChanges where state.presentation != shown {
      shown = state.presentation
      show(state)
      if state.shown == .wiped { end.yield() }
    }
  }
  Task {
    var asksForNew = false
    for await line in typed { await take(line, runtime, &asksForNew) }
    end.yield()
  }
  for await _ in ends { break }
  await runtime.stop()
  exit(0)
} catch {
  fail("Diary: \(error)", 1)
}
