import Foundation
import Testing

/// `send --to` and `outbox`, with a broker and a receiver in processes of their own.
struct OutboxCommandTests {
  private typealias World = ServiceCommandTests.World

  private func world() throws -> World {
    let world = try World()
    try Data(repeating: 7, count: 3 << 20).write(to: URL(fileURLWithPath: world.broker.folder.path("large")))
    try Data("small".utf8).write(to: URL(fileURLWithPath: world.broker.folder.path("small")))
    for name in ["large", "small"] {
      _ = try run(world, ["put", world.mail, world.broker.folder.path(name), "/\(name)"])
    }
    return world
  }

  private func run(
    _ world: World, _ arguments: [String], asksForKey: Bool = true, expecting status: Int32 = 0
  ) throws -> DynamicsProcess.Outcome {
    let all = arguments + (asksForKey ? world.broker.folder.key : [])
    let outcome = try DynamicsProcess(
      all.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment
    ).finish()
    #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
    return outcome
  }

  private func send(_ paths: [String]) -> [String] {
    ["send"] + paths + ["--from", "com.example.mail", "--to", "com.example.notes", "--json"]
  }

  @Test func sendsToAnAppThatRuns() throws {
    let world = try world()
    let app = try world.runNotes("--json")
    let one = try run(world, send([world.mail, "/large"]))
    let object = try #require(
      try JSONSerialization.jsonObject(with: Data(one.text.utf8)) as? [String: Any])
    #expect(object["isDelivered"] as? Bool == true && object["byteCount"] as? Int == 3 << 20)
    _ = try run(world, send([world.mail, "/large", "/small"]))
    try app.wait("saved") { try world.text(app).components(separatedBy: "\"saved\"").count == 4 }
    #expect(try world.text(app).contains("\"method\":\"transferFile\""))
    #expect(try world.text(app).contains("\"method\":\"saveFiles\""))
    #expect(try run(world, ["ls", world.notes, "/Documents"]).text == "large\nlarge-2\nsmall\n")
    #expect(try run(world, ["cat", world.notes, "/Documents/small"]).text == "small")
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)
    #expect(try run(world, ["inbox", world.notes]).text.isEmpty)
  }

  @Test(arguments: [true, false])
  func saysWhatAMessageWaitsFor(isCall: Bool) throws {
    let world = try world()
    let app = try world.runNotes("--locked")
    let call = [
      "services", "call", world.mail, "transferFile", "--id", "com.example.mail", "--to", "com.example.notes",
      "--service", "transfer-file", "--attach", "/small",
    ]
    let words = (isCall ? call : send([world.mail, "/small"])) + world.broker.folder.key
    let sender = try DynamicsProcess(
      words.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment)
    try sender.wait("what it waits for") {
      try String(decoding: readBytes(sender.errorPath), as: UTF8.self)
        .contains("dynamics: com.example.notes is locked; the message waits in the outbox\n")
    }
    try app.wait("who waits") {
      try world.text(app).contains("waiting for this app com.example.mail\n")
    }
    sender.signal(SIGTERM)
    _ = try sender.finish()
  }

  @Test func saysThatTheReceiverDoesNotRun() throws {
    let world = try world()
    let app = try world.runNotes()
    world.running = nil
    app.signal(SIGTERM)
    _ = try app.finish()
    let stopped = try run(world, send([world.mail, "/small"]), expecting: 5)
    #expect(stopped.errors.contains("com.example.notes does not run, and was not started"))
    let unknown = try run(
      world, ["send", world.mail, "/small", "--from", "com.example.mail", "--to", "com.example.none"],
      expecting: 5)
    #expect(
      unknown.errors.contains("there is no app with that id") && !unknown.errors.contains("does not run"))
  }

  @Test func keepsAMessageUntilItsReceiverHasIt() throws {
    let world = try world()
    let app = try world.runNotes("--locked")
    // Locked, it takes nothing now, and is there.
    let sent = try run(world, send([world.mail, "/small"]) + ["--no-wait"])
    let object = try #require(
      try JSONSerialization.jsonObject(with: Data(sent.text.utf8)) as? [String: Any])
    let id = try #require(object["requestID"] as? String)
    #expect(object["isDelivered"] as? Bool == false)
    #expect(
      try run(world, ["outbox", "list", world.mail]).text
        == "\(id)  request  com.example.notes  1 file  5 B\n")
    app.signal(SIGTERM)
    _ = try app.finish()
    // Changed and removed meanwhile: what was sent is what was there.
    _ = try run(world, ["rm", world.mail, "/small"])
    let running = try world.runNotes()
    #expect(
      try run(world, ["outbox", "resume", world.mail, "--id", "com.example.mail"]).text.hasPrefix(id))
    try running.wait("saved") { try world.text(running).contains("saved") }
    #expect(try run(world, ["cat", world.notes, "/Documents/small"]).text == "small")
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)
  }

  @Test func saysWhatWasRefusedWhenItGoesOn() throws {
    let world = try world()
    let locked = try world.runNotes("--locked")
    let sent = try run(world, send([world.mail, "/small"]) + ["--no-wait"])
    locked.signal(SIGTERM)
    _ = try locked.finish()
    _ = try run(world, ["apps", "policy", "add", "disable", "--service", "transfer-file"], asksForKey: false)
    try world.runNotes()
    let resume = ["outbox", "resume", world.mail, "--id", "com.example.mail"]
    let outcome = try run(world, resume + ["--json"], expecting: 1)
    #expect(outcome.text.contains(#""state":"refused""#) && outcome.errors.contains("serviceDisabled"))
    let list = try #require(
      try JSONSerialization.jsonObject(with: Data(outcome.text.utf8)) as? [String: Any])
    #expect((list["date"] as? String)?.hasSuffix("Z") == true)
    #expect(sent.text.contains(try #require(list["requestID"] as? String)))
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)
  }

  @Test func endsOnASignalWithItsCode() throws {
    let world = try world()
    let locked = try world.runNotes("--locked")
    _ = try run(world, send([world.mail, "/small"]) + ["--no-wait"])
    locked.signal(SIGTERM)
    _ = try locked.finish()
    let resuming = try DynamicsProcess(
      (["outbox", "resume", world.mail, "--id", "com.example.mail"] + world.broker.folder.key).map {
        Array($0.utf8)
      }, in: world.broker.folder, environment: world.broker.environment)
    usleep(300_000)
    resuming.signal(SIGTERM)
    #expect(try resuming.finish().status == 128 + SIGTERM)
    #expect(try !run(world, ["outbox", "list", world.mail]).text.isEmpty)
  }

  @Test func takesAMessageBack() throws {
    let world = try world()
    let locked = try world.runNotes("--locked")
    let sent = try run(world, send([world.mail, "/small"]) + ["--no-wait"])
    let object = try #require(
      try JSONSerialization.jsonObject(with: Data(sent.text.utf8)) as? [String: Any])
    let id = try #require(object["requestID"] as? String)
    locked.signal(SIGTERM)
    _ = try locked.finish()
    // It was never offered: nobody is asked, not even the broker.
    var cancel = ["outbox", "cancel", world.mail, "--id", "com.example.mail", id]
    #expect(try run(world, cancel + ["--socket", "/nobody/here"]).text == "\(id) taken back\n")
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)

    // The receiver might have it: it is asked when it runs again.
    let first = try world.runNotes()
    let killed = try DynamicsProcess(
      (send([world.mail, "/small"]) + world.broker.folder.key).map { Array($0.utf8) },
      in: world.broker.folder,
      environment: world.broker.environment.merging(["OPENDYNAMICS_FAIL_AT": "offering"]) { $1 })
    #expect(try killed.finish().status == 128 + SIGKILL)
    first.signal(SIGTERM)
    _ = try first.finish()
    let offered = try run(world, ["outbox", "list", world.mail]).text
    let other = try #require(offered.split(separator: " ").first).description
    cancel[5] = other
    let cancelling = try DynamicsProcess(
      (cancel + world.broker.folder.key).map { Array($0.utf8) }, in: world.broker.folder,
      environment: world.broker.environment)
    try world.runNotes()
    let outcome = try cancelling.finish()
    #expect(outcome.status == 0 && outcome.text == "\(other) taken back\n", "\(outcome.errors)")
    let left = try run(world, ["ls", world.notes]).text
    #expect(!left.contains("Documents") && !left.contains("Inbox"), "\(left)")
    #expect(try run(world, ["inbox", world.notes]).text.isEmpty)
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)
    #expect(try run(world, cancel, expecting: 1).errors.contains("not in the outbox"))
  }

  @Test func saysWhatCannotBeSent() throws {
    let world = try world()
    _ = try run(world, send([world.mail, "/none"]), expecting: 5)
    // Nobody of that name.
    _ = try run(world, send([world.mail, "/small"]), expecting: 5)
    #expect(try run(world, ["outbox", "list", world.mail]).text.isEmpty)
    for wrong in [
      ["send", world.mail, "/small", "--from", "com.example.mail"],
      send([world.mail, "/small"]) + ["--no-barrier"],
      ["send", world.mail, "/small", "--from", "x y", "--to", "com.example.notes"],
      ["outbox", "cancel", world.mail, "--id", "com.example.mail", "no-id"],
    ] {
      _ = try run(world, wrong, expecting: 64)
    }
  }
}
