import AppKineticsTesting
import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

/// Apps whose containers are not open, and that are there for others all the same.
@Suite(.timeLimit(.minutes(10)))
struct PresenceTests {
  private static let providerID = "com.example.provider"

  private func directory(_ world: TestApps) -> URL {
    world.directory.appendingPathComponent(Self.providerID)
  }

  private func lockedApp(_ world: TestApps) throws -> LockedApp {
    var options = AppServices.Options()
    options.broker = world.socketPath
    return try LockedApp(containerAt: directory(world), options: options)
  }

  private func startProvider(_ world: TestApps) async throws -> TestApp {
    try await world.start(Self.providerID) { try $0.offer(echo) { .reply($0.params) } }
  }

  /// What it throws; nil when it throws nothing.
  private func error(_ body: () async throws -> Void) async throws -> ServicesError? {
    do {
      try await body()
      return nil
    } catch let error as ServicesError {
      return error
    }
  }

  private func code(_ body: () async throws -> Void) async throws -> ServicesError.Code? {
    try await error(body)?.code
  }

  @Test func hearsWhoWaitsAndGivesWayToTheApp() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let locked = try lockedApp(world)
      #expect(locked.application.text == Self.providerID)
      try await locked.start()
      let (peers, front) = (locked.waitingPeers, locked.frontChanges)
      let run = Task { try await locked.run() }
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 7, attachments: ["/one"]), to: locked.application)
      #expect(await peers.first { !$0.isEmpty } == [consumer.id])
      // Those who listen later hear it as well.
      #expect(await locked.waitingPeers.first { _ in true } == [consumer.id])
      try await world.choose(Self.providerID)
      #expect(await front.first { $0 } == true)
      while try await consumer.services.outbox().first?.state != .locked { await Task.yield() }

      let provider = try await startProvider(world)
      try await run.value
      #expect(try await sent.reply()?.params == 7)
      #expect(try provider.inboxFiles().count == 1)
      #expect(provider.services.isInFront)
      // Nothing more is heard, and there is no place for another one.
      for await _ in locked.waitingPeers {}
      let next = try lockedApp(world)
      let refusal = try await error { try await next.start() }
      #expect(refusal == ServicesError(.placeTaken, detail: "the app runs, with its container open"))
      try await next.run()
    }
  }

  /// Closed at once under its services: the front stays, callers wait, no program starts, and 20 times in a row is no copy.
  @Test func takesThePlaceOfAnAppWhoseContainerIsSealed() async throws {
    try await withTestApps { world in
      var provider = try await startProvider(world)
      try await world.choose(Self.providerID)
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      for round in 0..<20 as Range<Int64> {
        await provider.services.presenceKeyIsKept()
        await provider.services.hold()
        try provider.container.close(.now, because: "a test")
        await provider.services.giveWay()
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "echo", params: .integer(round), attachments: ["/one"]), to: provider.id)
        let locked = try lockedApp(world)
        try await locked.start()
        let run = Task { try await locked.run() }
        #expect(await locked.waitingPeers.first { !$0.isEmpty } == [consumer.id])
        #expect(await locked.frontChanges.first { $0 } == true)
        while provider.services.connectionError == nil { await Task.yield() }
        await provider.services.stop()
        try await world.end(provider)
        provider = try await startProvider(world)
        try await run.value
        #expect(try await sent.reply()?.params == .integer(round))
        #expect(provider.services.isInFront)
      }
      #expect(try provider.inboxFiles().count == 20)
    }
  }

  /// Without a broker there is no place to give, and nobody waits for an answer.
  @Test(.timeLimit(.minutes(1))) func nothingIsGivenWithoutABroker() async throws {
    try await withTestApps { world in
      let provider = try await startProvider(world)
      await world.stopBroker()
      while provider.services.connectionError == nil { await Task.yield() }
      await provider.services.hold()
      await provider.services.giveWay()
      await provider.services.stop()
    }
  }

  @Test func anAppThatHasLeftIsANewOne() async throws {
    try await withTestApps { world in
      let file = directory(world).appendingPathComponent("presence.json")
      // It is written behind the enrolment.
      func key() async throws -> Data {
        while !FileManager.default.fileExists(atPath: file.path) { await Task.yield() }
        return try Data(contentsOf: file)
      }
      let provider = try await startProvider(world)
      let old = try await key()
      try await provider.services.leave()
      while provider.services.connectionError == nil { await Task.yield() }
      try await world.end(provider)
      #expect(try await code { try await lockedApp(world).start() } == .notEnrolled)
      try FileManager.default.removeItem(at: directory(world))
      _ = try await startProvider(world)
      #expect(try await key() != old)
    }
  }

  @Test func comesBackWithTheBroker() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let locked = try lockedApp(world)
      let run = Task { try await locked.run() }
      let consumer = try await world.start("com.example.consumer")
      func isPresent() async throws -> Bool {
        try await consumer.services.providers(of: echo.serviceID).first?.state == .locked
      }
      while try await !isPresent() { await Task.yield() }
      await world.stopBroker()
      try await world.startBroker()
      while (try? await isPresent()) != true { await Task.yield() }
      run.cancel()
      try await run.value
      while try await isPresent() { await Task.yield() }
    }
  }

  @Test func saysWhyItCannotBePresent() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let file = directory(world).appendingPathComponent("presence.json")
      let whole = try Data(contentsOf: file)
      let permissions = try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions]
      #expect((permissions as? NSNumber)?.intValue == 0o600)

      // Each byte that is missing, and some that are another.
      for count in [0, 1, whole.count / 2, whole.count - 2] {
        try whole.prefix(count).write(to: file)
        #expect(try await code { _ = try lockedApp(world) } == .certificateNotFound)
      }
      try Data(String(decoding: whole, as: UTF8.self).replacing("\"version\":1", with: "\"version\":2").utf8)
        .write(to: file)
      #expect(try await code { _ = try lockedApp(world) } == .certificateNotFound)
      try FileManager.default.removeItem(at: file)
      #expect(try await code { _ = try lockedApp(world) } == .certificateNotFound)

      // The app makes another key, and the old one is good for nothing.
      try await world.end(startProvider(world))
      let next = try Data(contentsOf: file)
      #expect(next != whole)
      try whole.write(to: file)
      #expect(try await code { try await lockedApp(world).start() } == .notEnrolled)
      #expect(try await code { try await lockedApp(world).run() } == .notEnrolled)
      try next.write(to: file)
      try await lockedApp(world).start()

      await world.stopBroker()
      #expect(try await code { try await lockedApp(world).start() } == .brokerUnavailable)
    }
  }

  @Test func saysThatThereIsNoContainer() async throws {
    try await withTestApps { world in
      let place = directory(world)
      for isThere in [false, true] {
        if isThere { try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true) }
        do {
          _ = try lockedApp(world)
          Issue.record("there is no container")
        } catch let error as SecureFilesError {
          #expect(error.code == .notAContainer && error.path == place.path)
          #expect(error.what == (isThere ? "this is not a container" : "there is no such directory"))
        }
      }
    }
  }

  @Test func saysThatTheAppWasForgotten() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let locked = try lockedApp(world)
      try await locked.start()
      let run = Task { try await locked.run() }
      let administrator = try await world.administrator()
      defer { administrator.close() }
      _ = try await administrator.ask(.administer(.with { $0.forget = Self.providerID }))
      let end = try await error { try await run.value }
      #expect(end == ServicesError(.notEnrolled, detail: "an administrator forgot the app"))
      #expect(try await code { try await lockedApp(world).start() } == .notEnrolled)
      // The app enrols anew.
      try await world.end(startProvider(world))
      try await lockedApp(world).start()
    }
  }

  @Test func startsOnce() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let locked = try lockedApp(world)
      for _ in 0..<2 { try await locked.start() }
      let run = Task { try await locked.run() }
      try await locked.start()
      // The app takes its place, and nobody else did.
      _ = try await startProvider(world)
      try await run.value
    }
  }

  /// `start()` and `run()` do not replace each other's connection.
  @Test func runsWhileItStarts() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      for pause in 0..<6 {
        let locked = try lockedApp(world)
        async let started: Void = locked.start()
        // Later and later, so that some of them find it dialling.
        for _ in 0..<pause { await Task.yield() }
        let run = Task { try await locked.run() }
        try await started
        // The app takes its place, and nobody else did.
        let provider = try await startProvider(world)
        try await run.value
        try await world.end(provider)
      }
    }
  }

  /// One that stands in is not taken for the app by the one whose place it takes.
  @Test func anotherOneTakesThePlace() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let one = try lockedApp(world)
      try await one.start()
      let run = Task { try await one.run() }
      let other = try lockedApp(world)
      try await other.start()
      #expect(try await code { try await run.value } == .placeTaken)
      // It is present until its task is cancelled, also when that was before it began.
      let late = Task { try await other.run() }
      late.cancel()
      try await late.value
      try await lockedApp(world).start()
    }
  }

  /// A tool that opens the container to send something is no process that can be asked for.
  @Test func whatDoesNotRegisterLeavesTheKey() async throws {
    try await withTestApps { world in
      try await world.end(startProvider(world))
      let file = directory(world).appendingPathComponent("presence.json")
      let before = try Data(contentsOf: file)
      let tool = try await world.start(Self.providerID, options: { $0.registers = false })
      try await world.end(tool)
      #expect(try Data(contentsOf: file) == before)
      try await lockedApp(world).start()
    }
  }
}
