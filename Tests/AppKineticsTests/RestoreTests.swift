import AppKineticsTesting
import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import TestSupport
import Testing

@testable import AppKinetics

/// A sender whose container is put back to an earlier state: its numbers come again, for other messages.
@Suite(.timeLimit(.minutes(10)))
struct RestoreTests {
  private let consumerID = "com.example.consumer"

  private func send(_ name: String, to provider: TestApp, _ world: TestApps) async throws {
    let consumer = try await world.app(consumerID)
    try consumer.container.files.write(Data(name.utf8), toPath: "/file")
    try await consumer.services.start()
    let sent = try await consumer.services.send(
      ServiceRequest(echo, "tell", params: .string(name), attachments: ["/file"]), to: provider.id)
    try await sent.delivered()
    #expect(try await consumer.services.outbox().isEmpty)
    await consumer.services.stop()
    try await consumer.container.close()
  }

  /// What a provider hears.
  private struct Heard: Sendable {
    let received = Box<String>()
    /// Of these, what may have come before.
    let repeated = Box<String>()
    let rollbacks = Box<Rollback>()
  }

  private static let providerID = "com.example.provider"

  private func startProvider(_ world: TestApps, _ heard: Heard) async throws -> TestApp {
    let provider = try await world.app(Self.providerID)
    try provider.services.offer(echo) { request in
      let name = request.params?.stringValue ?? ""
      // The services ended before the container knew that it was handled.
      guard !request.isRedelivered else { return .noReply }
      if request.mayBeRepeated { heard.repeated.put(name) }
      heard.received.put(name)
      return .noReply
    }
    listen(to: provider, heard.rollbacks)
    try await provider.services.start()
    return provider
  }

  private func listen(to app: TestApp, _ rollbacks: Box<Rollback>) {
    let stream = app.services.rollbacks
    Task { for await rollback in stream { rollbacks.put(rollback) } }
  }

  private func withProvider(_ body: (TestApps, TestApp, Heard) async throws -> Void) async throws {
    try await withTestApps { world in
      let heard = Heard()
      try await body(world, startProvider(world, heard), heard)
    }
  }

  private func copy(_ world: TestApps, _ app: String = "com.example.consumer") throws {
    try FileManager.default.copyItem(at: container(world, app), to: backup(world, app))
  }

  private func restore(_ world: TestApps, _ app: String = "com.example.consumer") throws {
    try FileManager.default.removeItem(at: container(world, app))
    try FileManager.default.copyItem(at: backup(world, app), to: container(world, app))
  }

  private func container(_ world: TestApps, _ app: String = "com.example.consumer") -> URL {
    world.directory.appendingPathComponent(app)
  }
  private func backup(_ world: TestApps, _ app: String = "com.example.consumer") -> URL {
    world.directory.appendingPathComponent("backup of " + app)
  }

  /// Above and below the floor of the receiver: the last message before the copy is put back, and several.
  @Test(arguments: [1, 3]) func deliversWhatARestoredSenderSends(lostCount: Int) async throws {
    try await withProvider { world, provider, heard in
      try await send("before", to: provider, world)
      try copy(world)
      for i in 0..<lostCount { try await send("lost \(i)", to: provider, world) }
      for round in 0..<2 {
        try restore(world)
        try await send("after \(round)", to: provider, world)
        try await send("later \(round)", to: provider, world)
      }
      let expected =
        ["before"] + (0..<lostCount).map { "lost \($0)" } + ["after 0", "later 0", "after 1", "later 1"]
      for name in expected { #expect(await heard.received.next() == name) }
      #expect(heard.received.values == expected)
      #expect(heard.repeated.values == [])
      let messages = try provider.container.inboxMessages()
      #expect(messages.count == expected.count)
      #expect(try provider.container.store.verify().findings.isEmpty)
    }
  }

  /// Offers are made ahead: those of the messages that are sent before the first one is answered have the incarnation
  /// that the receiver refuses.
  @Test func deliversWhatARestoredSenderSendsTogether() async throws {
    try await withProvider { world, provider, heard in
      try await send("before", to: provider, world)
      try copy(world)
      let own = Box<Rollback>()
      func sendTogether(_ name: String) async throws {
        let consumer = try await world.app(consumerID)
        listen(to: consumer, own)
        try await consumer.services.start()
        var sent: [SentRequest] = []
        for i in 0..<40 {
          sent.append(
            try await consumer.services.send(
              ServiceRequest(echo, "tell", params: .string("\(name) \(i)"), attachments: ["/file"]),
              to: provider.id))
        }
        for sent in sent { try await sent.delivered() }
        #expect(try await consumer.services.outbox().isEmpty)
        try await world.end(consumer)
      }
      try await sendTogether("lost")
      #expect(own.values == [])
      try restore(world)
      try await sendTogether("after")
      #expect(await own.next() == Rollback(side: .thisApp, application: provider.id, effect: .repeats))
      let expected = ["before"] + ["lost", "after"].flatMap { name in (0..<40).map { "\(name) \($0)" } }
      for _ in expected { _ = await heard.received.next() }
      #expect(heard.received.values.sorted() == expected.sorted())
      #expect(try provider.container.inboxMessages().count == expected.count)
      #expect(try provider.container.store.verify().findings.isEmpty)
    }
  }

  /// The same for a copy that is used beside the original.
  @Test func deliversWhatBothOfTwoCopiesSend() async throws {
    try await withProvider { world, provider, heard in
      try await send("before", to: provider, world)
      try copy(world)
      var expected = ["before"]
      let aside = world.directory.appendingPathComponent("aside")
      for round in 0..<4 {
        try await send("round \(round)", to: provider, world)
        expected.append("round \(round)")
        try FileManager.default.moveItem(at: container(world), to: aside)
        try FileManager.default.moveItem(at: backup(world), to: container(world))
        try FileManager.default.moveItem(at: aside, to: backup(world))
      }
      for name in expected { #expect(await heard.received.next() == name) }
      #expect(heard.received.values == expected)
    }
  }

  /// Both hear of it, the messages that its outbox had come once more where they are not remembered any more, and
  /// say so.
  @Test func marksWhatARestoredSenderSendsAgain() async throws {
    try await withTestApps { world in
      let heard = Heard()
      let provider = try await startProvider(world, heard)
      try await send("before", to: provider, world)
      // Waits in the outbox, and in the copy of it.
      let consumer = try await world.app(consumerID)
      try await consumer.services.start()
      await world.stopBroker()
      _ = try await consumer.services.send(
        ServiceRequest(echo, "tell", params: .string("waiting"), attachments: ["/file"]), to: provider.id)
      await consumer.services.stop()
      try await consumer.container.close()
      try copy(world)
      try await world.startBroker()
      func resume(_ count: Int, _ rollbacks: Box<Rollback>) async throws {
        let consumer = try await world.app(consumerID)
        listen(to: consumer, rollbacks)
        try await consumer.services.start()
        // It may not have found the new broker yet.
        while try await consumer.services.providers(of: echo.serviceID).first?.state != .running {
          await Task.yield()
        }
        for i in 0..<count {
          let sent = try await consumer.services.send(
            ServiceRequest(echo, "tell", params: .string("\(i)"), attachments: ["/file"]), to: provider.id)
          try await sent.delivered()
        }
        while try await !consumer.services.outbox().isEmpty { try await Task.sleep(for: .milliseconds(10)) }
        await consumer.services.stop()
        try await consumer.container.close()
      }
      let own = Box<Rollback>()
      // Its id is remembered: it comes once.
      try await resume(3, own)
      try restore(world)
      try await resume(0, own)
      // It is empty when all handlers have returned.
      while try !provider.container.store.messageQueue().unhandled.isEmpty {
        try await Task.sleep(for: .milliseconds(5))
      }
      #expect(heard.repeated.values == [] && own.values == [])
      #expect(heard.received.values.filter { $0 == "waiting" }.count == 1)
      // It is not any more.
      try restore(world)
      try await resume(300, own)
      try restore(world)
      try await resume(1, own)
      // Handlers and rollback reports follow the delivery a little later.
      while heard.received.values.filter({ $0 == "waiting" }).count < 2 || own.values.isEmpty
        || heard.rollbacks.values.isEmpty
      {
        try await Task.sleep(for: .milliseconds(5))
      }
      // That the other one is new only its sender could know, which wrote it before it heard of its own past.
      #expect(heard.repeated.values.filter { $0 != "0" } == ["waiting"])
      #expect(heard.received.values.filter { $0 == "waiting" }.count == 2)
      let rollback = Rollback(side: .thisApp, application: provider.id, effect: .repeats)
      #expect(own.values.allSatisfy { $0 == rollback })
      let other = Rollback(side: .otherApp, application: try ApplicationID(consumerID), effect: .repeats)
      #expect(heard.rollbacks.values.allSatisfy { $0 == other })
      #expect(try provider.container.store.verify().findings.isEmpty)
    }
  }

  /// What was delivered to it since the copy was made is not there: both hear how much that is.
  @Test func tellsThatAReceiverWasPutBack() async throws {
    try await withTestApps { world in
      let heard = Heard()
      var provider = try await startProvider(world, heard)
      try await send("before", to: provider, world)
      await provider.services.stop()
      try await provider.container.close()
      try copy(world, Self.providerID)
      provider = try await startProvider(world, heard)
      for i in 0..<3 { try await send("lost \(i)", to: provider, world) }
      await provider.services.stop()
      try await provider.container.close()
      #expect(heard.rollbacks.values == [])
      try restore(world, Self.providerID)
      provider = try await startProvider(world, heard)

      let consumer = try await world.app(consumerID)
      let told = Box<Rollback>()
      listen(to: consumer, told)
      try await consumer.services.start()
      for name in ["after", "later"] {
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "tell", params: .string(name), attachments: ["/file"]), to: provider.id)
        try await sent.delivered()
      }
      #expect(await told.next() == Rollback(side: .otherApp, application: provider.id, effect: .lacks(3)))
      #expect(
        await heard.rollbacks.next()
          == Rollback(side: .thisApp, application: consumer.services.application.id, effect: .lacks(nil)))
      let expected = ["before", "lost 0", "lost 1", "lost 2", "after", "later"]
      for name in expected { #expect(await heard.received.next() == name) }
      #expect(heard.repeated.values == [])
      #expect(try provider.container.inboxMessages().count == 3)
      // Once.
      #expect(told.values.count == 1 && heard.rollbacks.values.count == 1)
    }
  }

  /// Either container put back to a copy of any time, again and again: what is reported as delivered is in the
  /// receiver's container of then, and what comes twice into the same one is marked.
  @Test(arguments: seeds(4)) func holdsWhateverIsPutBack(seed: UInt64) async throws {
    var random = SplitMix64(seed: seed)
    try await withTestApps { world in
      let apps = [consumerID, Self.providerID]
      let heard = Heard()
      // The names that the receiver's container has, now and in its copy.
      var (has, copied): (Set<String>, Set<String>) = ([], [])
      for app in apps {
        try await world.app(app).container.close()
        try copy(world, app)
      }
      for step in 0..<24 {
        let provider = try await startProvider(world, heard)
        let name = "message \(step)"
        let before = heard.received.values.count
        try await send(name, to: provider, world)
        while !heard.received.values.contains(name) { try await Task.sleep(for: .milliseconds(5)) }
        await provider.services.stop()
        let repeated = Set(heard.repeated.values)
        for name in heard.received.values[before...] {
          #expect(has.insert(name).inserted || repeated.contains(name), "\(name) came twice in step \(step)")
        }
        #expect(try provider.container.inboxMessages().count >= has.count)
        #expect(try provider.container.store.verify().findings.isEmpty)
        try await provider.container.close()
        let app = apps[Int.random(in: 0..<2, using: &random)]
        switch Int.random(in: 0..<4, using: &random) {
        case 0:
          try FileManager.default.removeItem(at: backup(world, app))
          try copy(world, app)
          if app == Self.providerID { copied = has }
        case 1, 2:
          try restore(world, app)
          if app == Self.providerID { has = copied }
        default: break
        }
      }
    }
  }
}
