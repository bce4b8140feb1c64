import Dispatch
import Foundation
import ServiceWire
import Synchronization
import Testing

@testable import LocalTransport

/// What is done on a lane's thread for others, and who reads meanwhile.
@Suite(.timeLimit(.minutes(5)))
struct LaneWorkTests {
  let executor = LaneExecutor()

  /// Lanes whose far end does `work` when it receives something.
  private func lanes(
    _ pollTime: Duration, _ work: @escaping EventLog.Answer
  ) async throws -> (near: (ControlLane, EventLog), far: (ControlLane, EventLog)) {
    let world = try LaneWorld()
    return try await LanePlace.$tested.withValue(.thread(executor, pollTime: pollTime)) {
      try await world.openLanes(
        answers: ({ _, _ in }, { if case .received = $1 { work($0, $1) } }))
    }
  }

  @Test func isDoneOnTheThreadAfterItsTurn() async throws {
    let seen = Mutex<[String]>([])
    let (near, far) = try await lanes(.zero) { [executor] lane, _ in
      let thread = LaneThread.current.currentValue
      #expect(lane.eventLoop.inEventLoop)
      executor.mustPerformHere {
        #expect(!lane.eventLoop.inEventLoop)
        #expect(LaneThread.current.currentValue === thread)
        seen.withLock { $0.append("a") }
        executor.mustPerformHere { seen.withLock { $0.append("c") } }
      }
      executor.mustPerformHere { seen.withLock { $0.append("b") } }
      seen.withLock { $0.append("turn") }
    }
    try near.0.send([.ping(1)])
    #expect(await far.1.messages(1).count == 1)
    near.0.close(.noError)
    _ = await far.1.end()
    while seen.withLock({ $0.count }) < 4 { try await Task.sleep(for: .milliseconds(1)) }
    #expect(seen.withLock { $0 } == ["turn", "a", "b", "c"])
  }

  @Test func isNotDoneElsewhere() async throws {
    let isDone = executor.performHere { Issue.record("nobody's work") }
    #expect(!isDone)
    let other = LaneExecutor()
    let (near, far) = try await lanes(.zero) { _, _ in
      let isDone = other.performHere { Issue.record("another's work") }
      #expect(!isDone)
    }
    try near.0.send([.ping(1)])
    #expect(await far.1.messages(1).count == 1)
    near.0.close(.noError)
    _ = await far.1.end()
  }

  /// Another thread reads on, and does what else there is to do; the first one goes when it is done.
  @Test(arguments: [Duration.zero, LanePlace.pollTime])
  func holdsUpNothingWhenItIsLong(_ pollTime: Duration) async throws {
    for _ in 0..<10 {
      let gate = DispatchSemaphore(value: 0)
      let isFirst = Mutex(true)
      let threads = Mutex<(busy: WeakThread, next: WeakThread)?>(nil)
      let (near, far) = try await lanes(pollTime) { [executor] _, _ in
        guard isFirst.withLock({ $0.exchange(false) }) else { return }
        let busy = WeakThread()
        executor.mustPerformHere {
          gate.wait()
          let reads = executor.performHere {}
          #expect(!reads)
        }
        executor.mustPerformHere { threads.withLock { $0 = (busy, WeakThread()) } }
      }
      // All of this while its thread waits.
      for number in 1...3 {
        try near.0.send([.ping(number)])
        #expect(await far.1.messages(1) == [.ping(number)])
        try far.0.send([.ping(number)])
        #expect(await near.1.messages(1) == [.ping(number)])
      }
      while threads.withLock({ $0 == nil }) { try await Task.sleep(for: .milliseconds(1)) }
      let (busy, next) = try #require(threads.withLock { $0 })
      #expect(busy.thread != nil)
      #expect(busy.thread !== next.thread)
      gate.signal()
      while busy.thread != nil { try await Task.sleep(for: .milliseconds(1)) }
      try near.0.send([.ping(4)])
      #expect(await far.1.messages(1) == [.ping(4)])
      near.0.close(.noError)
      #expect(await far.1.end()?.fault == .noError)
      while next.thread != nil { try await Task.sleep(for: .milliseconds(1)) }
    }
  }

  /// Also at the end, when nothing more is read.
  @Test func isDoneWhenTheLaneHasEnded() async throws {
    let gate = DispatchSemaphore(value: 0)
    let (done, continuation) = AsyncStream<Int>.makeStream()
    let (near, far) = try await lanes(.zero) { [executor] lane, _ in
      lane.whenClosed {
        executor.mustPerformHere {
          gate.wait()
          continuation.yield(1)
        }
        executor.mustPerformHere { continuation.yield(2) }
      }
    }
    try near.0.send([.ping(1)])
    #expect(await far.1.messages(1).count == 1)
    near.0.close(.noError)
    _ = await far.1.end()
    var order = done.makeAsyncIterator()
    #expect(await order.next() == 2)
    gate.signal()
    #expect(await order.next() == 1)
  }

  /// The thread that made it.
  private final class WeakThread: @unchecked Sendable {
    // Invariant: set once, by the initialiser; a weak reference may be read by any thread.
    private(set) weak var thread: LaneThread?
    init() { thread = LaneThread.current.currentValue }
  }
}

extension LaneExecutor {
  fileprivate func mustPerformHere(_ work: @escaping @Sendable () -> Void) {
    let isDone = performHere(work)
    #expect(isDone)
  }
}

extension Bool {
  fileprivate mutating func exchange(_ value: Bool) -> Bool {
    defer { self = value }
    return self
  }
}
