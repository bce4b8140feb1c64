// Lets the user choose a photo for another app: it comes to the front, shows the photos of its container, and sends the chosen one. Then the other app is
// in front again.
//
//   PhotoPicker DIR [CHOICE]       DIR: its container, with photos in /Photos. CHOICE: the number of the photo that the user chooses each
//                                  time; else the user types it, or an empty line to cancel. The passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
import ExampleSupport
import Foundation

/// Passes requests on to the screen, which shows one at a time.
final class Picker: ServiceProvider {
  let requests: AsyncStream<IncomingRequest>
  private let continuation: AsyncStream<IncomingRequest>.Continuation
  init() { (requests, continuation) = AsyncStream.makeStream() }
  func didReceive(_ request: IncomingRequest) { continuation.yield(request) }
}

let arguments = CommandLine.arguments
guard (2...3).contains(arguments.count),
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else { fail("usage: DYNAMICS_PASSPHRASE=… PhotoPicker DIR [CHOICE]", 64) }

do {
  let interruptions = interruptions()
  let container = try await openContainer(arguments[1], passphrase)
  let services = try AppServices(
    Application(id: ApplicationID("com.example.photo.picker"), name: "Photo picker"), container: container)
  let picker = Picker()
  try services.offer([Photos.definition], validates: true, provider: picker)
  // Before the start, so that no change is missed.
  let frontChanges = services.frontChanges
  let typed = arguments.count == 3 ? AsyncStream(unfolding: { arguments[2] }) : lines()
  try await services.start()
  say("ready")

  let screen = Task {
    var changes = frontChanges.makeAsyncIterator()
    var choices = typed.makeAsyncIterator()
    for await request in picker.requests {
      // The app that asks passes the front on. When that is refused, the user may still come here.
      while !services.isInFront, await changes.next() != nil {}
      do {
        let photos = try container.files.contentsOfDirectory(atPath: "/Photos").sorted()
        say("in front for \(request.sender)")
        for (index, photo) in photos.enumerated() { say("\(index + 1) \(photo)") }
        let choice = await choices.next().flatMap { Int($0) } ?? 0
        try await answer(request, with: photos.indices.contains(choice - 1) ? photos[choice - 1] : nil)
      } catch {
        say("\(request.sender) gets no answer: \(error)")
      }
    }
  }

  // Until SIGINT or SIGTERM.
  for await _ in interruptions { break }
  screen.cancel()
  await services.stop()
  try container.close()
} catch {
  fail("PhotoPicker: \(error)", 1)
}

/// With either answer the app that asked is in front again as soon as it has it. Nil: the user has cancelled.
func answer(_ request: IncomingRequest, with photo: String?) async throws {
  if let photo {
    try await request.reply(attachments: ["/Photos/\(photo)"], foreground: .peer)
    say("sent \(photo)")
  } else {
    let error = ServiceReplyError(code: Photos.cancelled, text: "the user has cancelled")
    try await request.reply(error: error, foreground: .peer)
    say("cancelled")
  }
}

/// What the user types, until the end of the input.
func lines() -> AsyncStream<String> {
  AsyncStream { continuation in
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      continuation.finish()
    }
  }
}
