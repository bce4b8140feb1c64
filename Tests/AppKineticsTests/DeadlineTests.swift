import AppKineticsTesting
import Foundation
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

/// Deadlines of the runtime, without waiting for them.
struct DeadlineTests {
  /// The code of what it throws; nil when it throws nothing.
  private func code(_ body: () async throws -> Void) async throws -> ServicesError.Code? {
    do {
      try await body()
      return nil
    } catch let error as ServicesError {
      return error.code
    }
  }

  @Test func channelsOnWhichNothingHappensAreClosed() async throws {
    try await withTestApps { world in
      let clock = ManualClock()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer") { $0.clock = clock }.services
      try await consumer.start()
      try await expectEchoes(1, to: provider.id, consumer)
      let lane = try #require(
        consumer.runtime.performAndWait { $0.peers[provider.id]?.channels.values.first?.lane })
      clock.advance(by: .milliseconds(59_000))
      try await expectEchoes(1, to: provider.id, consumer)
      clock.advance(by: .milliseconds(59_000))
      #expect(consumer.runtime.performAndWait { $0.peers[provider.id]?.channels.count } == 1)
      clock.advance(by: .milliseconds(2_000))
      await withCheckedContinuation { continuation in lane.whenClosed { continuation.resume() } }
      // Behind the news of that.
      while consumer.runtime.performAndWait({ $0.peers[provider.id]?.channels.isEmpty == false }) {
        await Task.yield()
      }
      clock.advance(by: .milliseconds(2_000))
      #expect(consumer.runtime.performAndWait { $0.peers.isEmpty })
      // And nothing wakes the app from then on.
      clock.advance(by: .milliseconds(1))
      #expect(clock.nextWake == nil)
      try await expectEchoes(1, to: provider.id, consumer)
    }
  }

  @Test func aLockedAppRefusesAfterTheUnlockTime() async throws {
    try await withTestApps { world in
      let clock = ManualClock()
      let provider = try await world.app("com.example.provider") { $0.clock = clock }
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      try await expectEchoes(1, to: provider.id, consumer)
      try await provider.services.setState(.locked)
      let early = try await consumer.send(ServiceRequest(echo, "echo", params: .integer(1)), to: provider.id)
      while provider.services.runtime.performAndWait({ core in
        core.peers.values.allSatisfy { $0.requests.nextDeadline == nil }
      }) {
        await Task.yield()
      }
      clock.advance(by: .milliseconds(29_000))
      #expect(early.status != .refused)
      clock.advance(by: .milliseconds(2_000))
      await #expect(throws: ServicesError(.notAllowed)) { try await early.reply() }
      try await provider.services.setState(.running)
      try await expectEchoes(1, to: provider.id, consumer)
    }
  }

  /// Later and later, at the end every ten seconds, and never all apps at once.
  @Test func dialsTheBrokerAgain() async throws {
    try await withTestApps { world in
      await world.stopBroker()
      let clock = ManualClock()
      let app = try await world.app("com.example.app") { $0.clock = clock }.services
      await #expect(throws: ServicesError.self) { try await app.start() }
      var pauses: [Duration] = []
      for _ in 0..<12 {
        // It has failed when it asks to be woken.
        while clock.nextWake == nil { await Task.yield() }
        let pause = try #require(clock.nextWake) - clock.now
        pauses.append(pause)
        clock.advance(by: pause)
      }
      for (i, pause) in pauses.enumerated() {
        let longest = min(Duration.milliseconds(100 << i), .seconds(10))
        #expect((longest / 2...longest).contains(pause), "pause \(i): \(pause)")
      }
      while clock.nextWake == nil { await Task.yield() }
      try await world.startBroker()
      clock.advance(by: .milliseconds(10_000))
      while app.connectionError != nil { await Task.yield() }
    }
  }

  /// Another broker in the place of the trusted one may have been a mistake: the app does not need a new start
  /// when that has passed.
  @Test func goesOnAskingForTheBrokerThatItTrusts() async throws {
    try await withTestApps { world in
      let clock = ManualClock()
      let app = try await world.app("com.example.app") { $0.clock = clock }.services
      try await app.start()
      await world.stopBroker()
      let (state, aside) = (world.stateDirectory, world.stateDirectory + "-aside")
      try FileManager.default.moveItem(atPath: state, toPath: aside)
      try await world.startBroker()
      var pauses: [Duration] = []
      while pauses.count < 12 {
        while clock.nextWake == nil { await Task.yield() }
        let pause = try #require(clock.nextWake) - clock.now
        // The first may be the end of the connection to the trusted one.
        if app.connectionError?.code == .certificateNotFound { pauses.append(pause) }
        clock.advance(by: pause)
      }
      #expect(pauses.allSatisfy { (.milliseconds(500)...(.seconds(300))).contains($0) })
      #expect(pauses.dropFirst(9).allSatisfy { $0 >= .seconds(128) })
      #expect(try await code { try await app.start() } == .certificateNotFound)
      await world.stopBroker()
      try FileManager.default.removeItem(atPath: state)
      try FileManager.default.moveItem(atPath: aside, toPath: state)
      try await world.startBroker()
      while clock.nextWake == nil { await Task.yield() }
      clock.advance(by: .milliseconds(300_000))
      while app.connectionError != nil { await Task.yield() }
    }
  }

  /// However often the app asks, a broker that is not trusted is not dialled all the time.
  @Test func questionsDoNotDialAnUntrustedBrokerAllTheTime() async throws {
    try await withTestApps { world in
      try await world.end(world.start("com.example.app"))
      await world.stopBroker()
      try FileManager.default.removeItem(atPath: world.stateDirectory)
      try await world.startBroker()
      let clock = ManualClock()
      let app = try await world.app("com.example.app") { $0.clock = clock }.services
      // So often that the pause is longer than ten seconds. A start dials each time.
      for _ in 0..<6 {
        #expect(try await code { try await app.start() } == .certificateNotFound)
      }
      func phaseAfterAQuestion() -> BrokerSession.Phase {
        app.runtime.performAndWait { core in
          core.broker.ask(.connect(.with { $0.appID = "com.example.other" })) { _, _ in }
          return core.broker.phase
        }
      }
      #expect(phaseAfterAQuestion() == .down)
      #expect(try await code { _ = try await app.providers() } == .certificateNotFound)
      clock.advance(by: .milliseconds(9_999))
      #expect(phaseAfterAQuestion() == .down)
      clock.advance(by: .milliseconds(1))
      #expect(phaseAfterAQuestion() == .dialling)
    }
  }

  /// A question dials at once, because the broker may be back.
  @Test func aQuestionDialsABrokerThatWasAway() async throws {
    try await withTestApps { world in
      let clock = ManualClock()
      let app = try await world.app("com.example.app") { $0.clock = clock }.services
      await world.stopBroker()
      for _ in 0..<6 { #expect(try await code { try await app.start() } == .brokerUnavailable) }
      try await world.startBroker()
      #expect(try await app.providers() == [])
    }
  }
}
