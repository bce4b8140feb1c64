import Foundation
import Testing

/// `app present`, with a broker and other apps in processes of their own.
struct PresentCommandTests {
  private typealias World = ServiceCommandTests.World

  private func present(
    _ world: World, at directory: String? = nil, _ options: String...
  ) throws -> DynamicsProcess {
    try DynamicsProcess(
      (["app", "present", directory ?? world.notes] + options).map { Array($0.utf8) },
      in: world.broker.folder, environment: world.broker.environment)
  }

  private func end(_ process: DynamicsProcess) throws -> DynamicsProcess.Outcome {
    process.signal(SIGTERM)
    return try process.finish()
  }

  @Test func standsInForAnAppUntilItRuns() throws {
    let world = try World()
    // It has no key before it has run.
    let tooEarly = try present(world).finish()
    #expect(tooEarly.status == 1 && tooEarly.errors.contains("dynamics app run"), "\(tooEarly.errors)")
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
    #expect(outcome.errors.contains("start app present again when that process has ended"))
    #expect(try world.text(app).contains("in front\n"))
    let refused = try present(world).finish()
    #expect(refused.status == 5)
    #expect(
      refused.errors == """
        dynamics: another process is at the broker for this app (the app runs, with its container open)
          start this one again when that process has ended

        """)
  }

  @Test func saysWhyItEnds() throws {
    let world = try World()
    _ = try end(world.runNotes())
    world.running = nil
    let first = try present(world, "--json")
    try first.wait("presence") { try world.text(first).contains("\"event\":\"present\"") }
    let second = try present(world)
    try second.wait("presence") { try world.text(second) == "present com.example.notes\n" }
    let replaced = try first.finish()
    #expect(replaced.status == 5 && replaced.errors.contains("\"code\":\"placeTaken\""), "\(replaced.errors)")
    _ = try world.broker.run("apps", "forget", "com.example.notes")
    for outcome in try [second.finish(), present(world).finish()] {
      #expect(outcome.status == 5)
      for text in ["the broker does not know this app", "dynamics app run"] {
        #expect(outcome.errors.contains(text), "\(outcome.errors)")
      }
    }
  }

  @Test func saysThatThereIsNoContainer() throws {
    let world = try World()
    let directory = world.broker.folder.path("empty")
    let missing = try present(world, at: directory).finish()
    #expect(missing.status == 5 && missing.errors.hasPrefix("dynamics: there is no such directory: "))
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    let empty = try present(world, at: directory).finish()
    #expect(empty.status == 5 && empty.errors.hasPrefix("dynamics: this is not a container: "))
    #expect(empty.errors.contains("/empty\n"))
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
