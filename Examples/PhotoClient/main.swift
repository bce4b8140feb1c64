// Asks for a photo when it comes to the front for the first time, and keeps it. Meanwhile the app with the photos is in front.
//
//   PhotoClient DIR            DIR: its container, made when it is not there. The passphrase is in DYNAMICS_PASSPHRASE.
//
// The user brings it to the front: `dynamics front com.example.photo.client`.
import AppKinetics
import ExampleSupport
import Foundation

guard CommandLine.arguments.count == 2,
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else { fail("usage: DYNAMICS_PASSPHRASE=… PhotoClient DIR", 64) }

do {
  let interruptions = interruptions()
  let container = try await openOrCreateContainer(CommandLine.arguments[1], passphrase)
  let services = try AppServices(
    Application(id: ApplicationID("com.example.photo.client"), name: "Photo client"), container: container)
  // Before the start, so that no change is missed.
  let frontChanges = services.frontChanges
  try await services.start()
  say("ready")

  let screen = Task {
    var asking: Task<Void, Never>?
    for await isInFront in frontChanges {
      say(isInFront ? "in front" : "not in front")
      if isInFront, asking == nil { asking = Task { await askForPhoto(services) } }
    }
  }

  // Until SIGINT or SIGTERM.
  for await _ in interruptions { break }
  screen.cancel()
  await services.stop()
  try container.close()
} catch {
  fail("PhotoClient: \(error)", 1)
}

func askForPhoto(_ services: AppServices) async {
  do {
    let photos = Photos.definition
    let providers = try await services.providers(of: photos.serviceID, version: photos.version)
    guard let picker = providers.first else { return say("nobody has photos") }
    say("asks \(picker.name) for a photo")
    // The picker comes to the front when it has the request, and passes the front back with its reply.
    let sent = try await services.send(
      ServiceRequest(photos, "pick", foreground: .peer), to: picker.application)
    guard let photo = try await sent.reply()?.attachments.first else { return say("no photo came") }
    let files = services.container.files
    let place = "/Photos/" + URL(fileURLWithPath: photo).lastPathComponent
    try files.createDirectory(atPath: "/Photos", withIntermediateDirectories: true)
    // The new photo takes the place of an older one with the same name.
    if files.fileExists(atPath: place) { try files.removeItem(atPath: place) }
    try files.moveItem(atPath: photo, toPath: place)
    // The runtime removes nothing from the inbox, so the app does.
    try await sent.removeReplyAttachments()
    say("has \(place)")
  } catch let error as ServiceReplyError where error.code == Photos.cancelled {
    say("the user has cancelled")
  } catch {
    say("no photo came: \(error)")
  }
}
