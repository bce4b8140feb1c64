import AppKinetics
import AppKineticsTesting
import Foundation
import SecureFiles
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The programs of Examples/, as processes of their own.
struct ProcessTests {
  @Test func greets() async throws {
    try await withTestApps { world in
      let service = try Program("GreetingsService", world)
      #expect(await service.line() == "ready")
      #expect(
        try await Program("GreetingsClient", world).output()
          == ["Greetings: Hello, com.example.greetings.client."])
      #expect(await service.line() == "com.example.greetings.client asks for greetMe|2")
      service.signal(SIGTERM)
      #expect(await service.end() == 0)
      // Its registration stays; there is nobody to answer and no way to start it.
      let lines = try await Program("GreetingsClient", world).output()
      #expect(lines.count == 1 && lines[0].hasPrefix("Greetings: there is no app with that id"))
    }
  }

  /// A request that its handler keeps is on the disk when `keep()` returns, and nothing of it is before.
  @Test(arguments: ["keeping", "kept"]) func aRequestWithoutFilesIsKeptOverAKill(at point: String)
    async throws
  {
    try await withTestApps { world in
      let provider = try FrontApp("com.example.provider", world)
      try provider.start(environment: ["OPENDYNAMICS_FAIL_AT": point])
      try await provider.expect("ready")
      let consumer = try await world.frontApp("com.example.consumer")
      try consumer.tell("send com.example.provider none")
      try await provider.expect("show of com.example.consumer")
      // A consumer that has not heard of the delivery yet would say that the request was lost on the way.
      try await consumer.expect("send: done")
      try provider.tell("keep")
      try await provider.awaitKill()
      try provider.start()
      try await provider.expect("ready")
      #expect(try await provider.result(of: "answer") == (point == "kept" ? "done" : "general"))
      let outcome = try await consumer.value(of: "outcome")
      if point == "kept", outcome != "replied" {
        // The provider had not said yet that it keeps the request.
        #expect(outcome == "connectionLost")
        try await consumer.expect("unclaimed reply")
      } else {
        #expect(outcome == (point == "kept" ? "replied" : "connectionLost"))
      }
      for app in [provider, consumer] { try await app.end() }
    }
  }

  private func errors(_ app: FrontApp, _ world: TestApps) -> URL {
    world.directory.appendingPathComponent(app.id + ".err")
  }

  /// Guarded memory that is exhausted for a moment, at either side, interrupts a message and does not end it.
  @Test(arguments: ["begun", "receiving", "streaming"])
  func aMessageComesAgainAfterAShortage(at point: String) async throws {
    try await withTestApps { world in
      let provider = try FrontApp("com.example.provider", world)
      let consumer = try FrontApp("com.example.consumer", world)
      for app in [provider, consumer] {
        let errors = errors(app, world)
        try Data().write(to: errors)
        try app.start(
          environment: ["OPENDYNAMICS_FAIL_AT": "\(point):1:shortage"],
          errors: FileHandle(forWritingTo: errors))
        try await app.expect("ready")
      }
      try consumer.tell("send com.example.provider none /file")
      try await provider.expect("show of com.example.consumer")
      try provider.tell("reply none /answer")
      #expect(try await consumer.value(of: "outcome") == "replied")
      for app in [provider, consumer] { try await app.end() }
      for (app, file) in [(provider, "file"), (consumer, "answer")] {
        #expect(try String(contentsOf: errors(app, world), encoding: .utf8).contains("shortage at \(point)"))
        let container = try await SecureContainer.open(
          at: world.directory.appendingPathComponent(app.id),
          rawKey: TestApps.containerKey())
        let arrived = try container.files.subpathsOfDirectory(atPath: "/Inbox").filter { $0.hasSuffix(file) }
        #expect(arrived.count == 1, "\(arrived)")
        #expect(try container.store.verify().findings.isEmpty)
        try await container.close()
      }
    }
  }

  @Test func editsAFile() async throws {
    try await withTestApps { world in
      let url = world.directory.appendingPathComponent("EditClient")
      func container() throws -> SecureContainer {
        try SecureContainer.open(at: url, passphrase: SecretBytes(utf8: Program.passphrase))
      }
      let made = try await SecureContainer.create(at: url, passphrase: SecretBytes(utf8: Program.passphrase))
      try made.files.write(Data("written\n".utf8), toPath: "/note.txt")
      try await made.close()
      let service = try Program("EditService", world)
      #expect(await service.line() == "ready")
      let lines = try await Program("EditClient", world, "/note.txt").output()
      #expect(lines == ["Editor has /note.txt", "/note.txt came back"])
      #expect(await service.line()?.hasPrefix("edited /Inbox/com.example.edit.client/") == true)
      #expect(await service.line()?.hasPrefix("returned /Inbox/com.example.edit.client/") == true)
      service.signal(SIGTERM)
      #expect(await service.end() == 0)
      let after = try container()
      #expect(try after.files.data(atPath: "/note.txt") == Data("written\nedited\n".utf8))
      #expect(try after.inboxMessages().isEmpty)
      #expect(try OutboxMessage.all(in: after).isEmpty)
      try await after.close()
    }
  }

  /// A provider is killed again and again while requests come: each has an outcome, and a new process answers.
  @Test func outlivesTheDeathOfAProvider() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let provider = try ApplicationID("com.example.greetings.service")
      let request = ServiceRequest(greetings, "greetMe|2")
      // The end of the process before may not have been seen yet: what is sent to it then is lost, and the consumer is told.
      func greeting() async throws -> ServiceValue? {
        while true {
          do {
            return try await consumer.call(request, to: provider)?.params
          } catch ServicesError.connectionLost {
          }
        }
      }
      for _ in 0..<3 {
        let service = try Program("GreetingsService", world)
        #expect(await service.line() == "ready")
        #expect(
          try await greeting() == "Hello, com.example.consumer.")
        var sent: [SentRequest] = []
        for _ in 0..<100 { sent.append(try await consumer.send(request, to: provider)) }
        service.signal(SIGKILL)
        #expect(await service.end() == SIGKILL)
        var outcomes: [SentRequest.Status: Int] = [:]
        // Who asks again is answered by the next process, which knows nothing of them.
        let next = try Program("GreetingsService", world)
        #expect(await next.line() == "ready")
        for sent in sent {
          _ = try? await sent.reply()
          outcomes[sent.status, default: 0] += 1
        }
        let known = outcomes[.replied, default: 0] + outcomes[.lost, default: 0]
        #expect(known == 100, "\(outcomes)")
        #expect(
          try await greeting() == "Hello, com.example.consumer.")
        next.signal(SIGKILL)
        #expect(await next.end() == SIGKILL)
      }
    }
  }

  /// libdispatch ends a process that has no descriptor left for its first timer.
  @Test(arguments: [8, 9, 10, 11, 12, 14])
  func anAppWithTooFewDescriptorsGetsAnError(count: Int) async throws {
    try await withTestApps { world in
      let bundle = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
      let app = Process()
      app.executableURL = URL(fileURLWithPath: "/bin/sh")
      app.arguments = [
        "-c", "ulimit -n \(count) && exec \"$0\" \"$1\"",
        bundle.appendingPathComponent("GreetingsService").path,
        world.directory.appendingPathComponent("few").path,
      ]
      app.environment = ["DYNAMICS_PASSPHRASE": Program.passphrase, "HOME": world.directory.path]
      app.standardError = FileHandle.nullDevice
      try app.run()
      app.waitUntilExit()
      #expect(app.terminationReason == .exit && app.terminationStatus == 1)
    }
  }
}

extension Program {
  static let passphrase = "correct horse"

  /// An example with its container in the directory of a world.
  convenience init(_ name: String, _ world: TestApps, _ arguments: String...) throws {
    try self.init(name, world, arguments)
  }

  convenience init(_ name: String, _ world: TestApps, _ arguments: [String]) throws {
    try self.init(
      name, [world.directory.appendingPathComponent(name).path] + arguments,
      environment: [
        "DYNAMICS_PASSPHRASE": Self.passphrase, "OPENDYNAMICS_BROKER": world.socketPath,
        "HOME": world.directory.path,
      ])
  }
}
