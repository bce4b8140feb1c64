// Edits files for other apps of the user (the service "edit file"): it stamps a line on the end and sends the result back.
//
//   EditService DIR       DIR: its container, made when it is not there. The passphrase is in DYNAMICS_PASSPHRASE.
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

let stamp = Data("edited\n".utf8)

/// Changes the file where it is, in the inbox: nothing of it is ever in the clear outside of the container.
func edit(_ path: String, in files: SecureFileManager) throws {
  guard let handle = files.fileHandle(forUpdatingAtPath: path) else { throw CocoaError(.fileNoSuchFile) }
  try handle.seekToEnd()
  try handle.write(contentsOf: stamp)
  try handle.close()
}

guard CommandLine.arguments.count == 2,
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else {
  FileHandle.standardError.write(Data("usage: DYNAMICS_PASSPHRASE=… EditService DIR\n".utf8))
  exit(64)
}

do {
  let interruptions = interruptions()
  let container = try await container(at: URL(fileURLWithPath: CommandLine.arguments[1]), passphrase)
  let services = try AppServices(
    Application(id: ApplicationID("com.example.edit.service"), name: "Editor"), container: container)

  try services.offer(WellKnownService.editFile.definition, validates: true) { request in
    let path = request.attachments[0]
    // After a crash it comes once more: an edit that was made is not made twice.
    let isEdited =
      try request.isRedelivered && container.files.data(atPath: path).suffix(stamp.count) == stamp
    if !isEdited { try edit(path, in: container.files) }
    say("edited \(path) for \(request.sender)")
    let identification = request.params?.objectValue?["identificationData"]?.dataValue
    // In the outbox when this returns: it arrives, whatever becomes of this process.
    let sent = try await services.send(
      .saveEdit(path, identificationData: identification), to: request.sender)
    Task {
      // Its copy of the file is the other app's now; the message's directory in the inbox is ours to remove.
      try await sent.delivered()
      try container.removeInboxMessages(
        container.inboxMessages().filter { path.hasPrefix($0.directory + "/") })
      say("returned \(path)")
    }
    // The result is null: the file is open for editing.
    return .reply()
  }
  try await services.start()
  say("ready")

  // Until SIGINT or SIGTERM.
  for await _ in interruptions { break }
  await services.stop()
  try container.close()
} catch {
  FileHandle.standardError.write(Data("EditService: \(error)\n".utf8))
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
