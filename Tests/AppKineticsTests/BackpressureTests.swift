import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import Synchronization
import Testing

@testable import AppKinetics

/// What an app takes of a peer that sends more than it handles.
struct BackpressureTests {
  /// Messages that need no answer, and those that are merged, do not pile up in front of the app's state.
  @Test(arguments: [true, false]) func readsOnWhenTheLastBatchWasHandled(pongs: Bool) async throws {
    try await withWorld { world in
      let (provider, consumer) = try await world.echoPair()
      try await expectEchoes(1, to: provider.id, consumer)
      let lane = try #require(
        consumer.runtime.performAndWait { $0.peers[provider.id]?.channels.values.first?.lane })
      let message = WireChannelMessage.with {
        if pongs {
          $0.pong.number = .max
        } else {
          $0.acknowledged.floor = 1
          $0.acknowledged.incarnation = Data(count: 16)
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

  /// A thread that submits work does not go on for others for ever.
  @Test func leavesTheStateToAnotherThread() {
    let state = SerialWork()
    let rounds = Mutex(0)
    let done = DispatchSemaphore(value: 0)
    let own = ObjectIdentifier(Thread.current)
    let others = Mutex(0)
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
