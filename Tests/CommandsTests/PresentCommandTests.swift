import Foundation
import Testing

/// `app present`, with a broker and other apps in processes of their own.
struct PresentCommandTests {
  private typealias World = ServiceCommandTests.World

  private func present(_ world: World, _ options: String...) throws -> DynamicsProcess {
    try DynamicsProcess(
      (["app", "present", world.notes] + options).map { Array($0.utf8) }, in: world.broker.folder,
      environment: world.broker.environment)
  }

  private func end(_ process: DynamicsProcess) throws -> DynamicsProcess.Outcome {
    process.signal(SIGTERM)
    return try process.finish()
  }

  @Test func standsInForAnAppUntilItRuns() throws {
    let world = try World()
    // It has no key before it has run.
    #expect(try present(world).finish().status == 1)
    _ = try end(world.runNotes())
    world.running = nil
    let standIn = try present(world)
    try standIn.wait("presence") { try world.text(standIn) == "present com.example.notes\n" }
    try Data("small".utf8).write(to: URL(fileURLWithPath: world.broker.folder.path("small")))
    _ = try world.broker.folder.run("put", world.mail, world.broker.folder.path("small"), "/small")
    let sender = try DynamicsProcess(
      (["send", world.mail, "/small", "--from", "com.example.mail", "--to", "com.example.notes"]
        + world.broker.folder.key).map { Array($0.utf8) },
      in: world.broker.folder, environment: world.broker.environment)
    try standIn.wait("who waits") {
      try world.text(standIn).contains("waiting for this app com.example.mail\n")
    }
    _ = try world.broker.run("front", "com.example.notes", "--state", world.broker.folder.path("state"))
    try standIn.wait("the front") { try world.text(standIn).hasSuffix("in front\n") }
    // The front was the user's choice for this process: the app has it next, and not another one that stands in.
    let app = try world.runNotes(until: "saved com.example.mail")
    #expect(try sender.finish().status == 0)
    let outcome = try standIn.finish()
    #expect(outcome.status == 0 && outcome.text.hasSuffix("running com.example.notes\n"), "\(outcome.errors)")
    #expect(try world.text(app).contains("in front\n"))
    #expect(try present(world).finish().status == 5)
  }

  @Test func endsOnASignalAndWithoutABroker() throws {
    let world = try World()
    _ = try end(world.runNotes())
    world.running = nil
    let standIn = try present(world, "--json")
    try standIn.wait("presence") { try world.text(standIn).contains("\"event\":\"present\"") }
    let outcome = try end(standIn)
    #expect(outcome.status == 0 && !outcome.text.contains("running"), "\(outcome.errors)")
    #expect(try present(world, "--socket", "/nobody/here").finish().status == 5)
  }
}
