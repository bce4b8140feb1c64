// Offers the service "greetings" to other apps of the user until it is interrupted.
//
//   GreetingsService DIR       DIR: its container, made when it is not there. The passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
@preconcurrency import Dispatch
import Foundation

/// The app's own container: made at the first start, opened at every other.
func container(at url: URL, _ passphrase: String) async throws -> SecureContainer {
  let secret = try SecretBytes(utf8: passphrase)
  return FileManager.default.fileExists(atPath: url.path)
    ? try await SecureContainer.open(at: url, passphrase: secret)
    : try await SecureContainer.create(at: url, passphrase: secret)
}

guard CommandLine.arguments.count == 2,
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else {
  FileHandle.standardError.write(Data("usage: DYNAMICS_PASSPHRASE=… GreetingsService DIR\n".utf8))
  exit(64)
}

do {
  let interruptions = interruptions()
  let container = try await container(at: URL(fileURLWithPath: CommandLine.arguments[1]), passphrase)
  let services = try AppServices(
    Application(id: ApplicationID("com.example.greetings.service"), name: "Greetings"), container: container)

  // One handler for all methods: what is not in the definition never comes here.
  try services.offer(WellKnownService.greetings.definition, validates: true) { request in
    say("\(request.sender) asks for \(request.method)")
    switch request.method {
    case "greetMe|0": return .reply("Hello, \(request.sender).", foreground: .me)
    case "greetMe|1": return .reply("Hello, \(request.sender). Over to you.", foreground: .peer)
    case "greetMe|2": return .reply("Hello, \(request.sender).")
    default:
      for path in request.attachments { say("received \(path)") }
      return .noReply
    }
  }
  try await services.start()
  say("ready")

  // Until SIGINT or SIGTERM.
  for await _ in interruptions { break }
  await services.stop()
  try container.close()
} catch {
  FileHandle.standardError.write(Data("GreetingsService: \(error)\n".utf8))
  exit(1)
}

/// A line at once, also when nobody looks at a terminal.
@Sendable func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Returns a stream of SIGINT and SIGTERM, which do not end the program by themselves once it has returned.
func interruptions() -> AsyncStream<Int32> {
  AsyncStream { continuation in
    for number in [SIGINT, SIGTERM] {
      let isRegistered = DispatchSemaphore(value: 0)
      let source = DispatchSource.makeSignalSource(signal: number)
      source.setEventHandler { continuation.yield(number) }
      source.setRegistrationHandler {
        // Apple's sources do not keep a signal from ending the program.
        #if canImport(Darwin)
          signal(number, SIG_IGN)
        #endif
        isRegistered.signal()
      }
      source.resume()
      isRegistered.wait()
      continuation.onTermination = { _ in source.cancel() }
    }
  }
}
