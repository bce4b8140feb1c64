// Sends a file of its container to an app that edits files, waits for the result, and keeps that in the original's place.
//
//   EditClient DIR PATH       DIR: its container; PATH: the file in it. The passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
import Foundation

guard CommandLine.arguments.count == 3,
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else {
  FileHandle.standardError.write(Data("usage: DYNAMICS_PASSPHRASE=… EditClient DIR PATH\n".utf8))
  exit(64)
}

do {
  let path = CommandLine.arguments[2]
  let container = try SecureContainer.open(
    at: URL(fileURLWithPath: CommandLine.arguments[1]), passphrase: SecretBytes(utf8: passphrase))
  let services = try AppServices(
    Application(id: ApplicationID("com.example.edit.client"), name: "Edit client"), container: container)

  // The edited file comes as a request of its own, which may be long after.
  let (results, result) = AsyncThrowingStream<Void, any Error>.makeStream()
  try services.offer(WellKnownService.saveEditedFile.definition, validates: true) { request in
    // What was sent along with the file comes back with it: which file it is.
    let sent = request.params?.objectValue?["identificationData"]?.dataValue
    let original = sent.map { String(decoding: $0, as: UTF8.self) } ?? path
    if let edited = request.attachments.first, container.files.fileExists(atPath: edited) {
      try container.files.replaceItem(atPath: original, withItemAtPath: edited)
      try container.removeInboxMessages(
        container.inboxMessages().filter { edited.hasPrefix($0.directory + "/") })
    }
    result.yield()
    return .noReply
  }
  try await services.start()

  let editor = WellKnownService.editFile.definition
  guard let provider = try await services.providers(of: editor.serviceID, version: editor.version).first
  else {
    throw ServicesError(.applicationNotFound, detail: "nobody edits files")
  }
  let request = ServiceRequest.editFile(path, identificationData: Data(path.utf8))
  let sent = try await services.send(request, to: provider.application)
  // Throws when the editor cannot open the file.
  _ = try await sent.reply()
  print("\(provider.name) has \(path)")
  for try await _ in results { break }
  print("\(path) came back")
  await services.stop()
  try container.close()
} catch {
  FileHandle.standardError.write(Data("EditClient: \(error)\n".utf8))
  exit(1)
}
