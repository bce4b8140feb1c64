import AppKineticsTesting
import Foundation
import LocalTransport
import Locks
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Testing

@testable import AppKinetics

/// What an app takes of a peer that sends more than it handles.
struct BackpressureTests {
  /// Messages that need no answer, and those that are merged, do not pile up in front of the app's state.
  @Test(arguments: [true, false]) func readsOnWhenTheLastBatchWasHandled(pongs: Bool) async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      try await expectEchoes(1, to: provider.id, consumer)
      let lane = try #require(
        consumer.runtime.performAndWait { $0.peers[provider.id]?.channels.values.first?.lane })
      let message = WireChannelMessage.with {
        if pongs {
          $0.pong.number = .max
        } else {
          $0.acknowledged.floor = 1
          $0.acknowledged.incarnation.generation = 1
          $0.acknowledged.incarnation.draw = Data(count: 16)
        }
      }
      let batch = Array(repeating: message, count: 4096)
      let gate = provider.hold()
      // It stands still when the sockets are full: at the latest after two reads and what they hold.
      var sent = 0
      let end = ContinuousClock.now + .seconds(2)
      while sent < 1024, ContinuousClock.now < end {
        if lane.queuedByteCount > 0 {
          await Task.yield()
          continue
        }
        try lane.send(batch)
        sent += 1
      }
      #expect(sent < 64, "\(sent) batches were taken")
      gate.signal()
      try await expectEchoes(10, to: provider.id, consumer)
    }
  }

  /// Introductions and their sockets wait where they are as well, and none is lost for others that came first.
  @Test func takesNoMoreIntroductionsThanItHandles() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      try await expectEchoes(1, to: provider.id, consumer)
      let (dialler, _) = try await BrokerClient.begin(
        path: world.socketPath, key: try KeyPair(), broker: nil,
        .with {
          $0.enrol.version = 1
          $0.enrol.appID = "com.example.dialler"
          $0.enrol.activationUser = NSUserName()
          $0.enrol.state = .running
        })
      let gate = provider.hold()
      var refused = 0
      for _ in 0..<300 {
        do {
          _ = try await dialler.ask(.connect(.with { $0.appID = provider.id.text }))
        } catch let error as ServicesError {
          #expect(error.code == .limitExceeded)
          refused += 1
        }
      }
      // What the socket of an app that handles nothing takes, and no more.
      #if os(Linux)
        #expect(refused > 200)
      #endif
      let pendingCount = provider.services.runtime.pendingCount
      #expect(pendingCount < 16, "\(pendingCount) pieces of work wait")
      gate.signal()
      // On a slow machine the consumer's channel was closed meanwhile, and the next one waits behind the others.
      var isReached = false
      while !isReached {
        do {
          try await expectEchoes(10, to: provider.id, consumer)
          isReached = true
        } catch ServicesError.limitExceeded {
          await Task.yield()
        }
      }
      dialler.close()
    }
  }

  /// A thread that submits work does not go on for others for ever.
  @Test func leavesTheStateToAnotherThread() {
    let state = SerialWork()
    let rounds = Guarded(0)
    let done = DispatchSemaphore(value: 0)
    let own = ObjectIdentifier(Thread.current)
    let others = Guarded(0)
    @Sendable func work() {
      if ObjectIdentifier(Thread.current) != own { others.withLock { $0 += 1 } }
      guard
        rounds.withLock({
          $0 += 1
          return $0
        }) < 1000
      else {
        done.signal()
        return
      }
      state.perform(work)
    }
    state.perform(work)
    waitBlocking(done)
    #expect(others.withLock { $0 } > 900)
    #expect(state.pendingCount == 0)
  }
}
