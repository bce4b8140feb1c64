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
    let (places, continuation) = AsyncStream<(isReader: Bool, isWithinTurn: Bool)>.makeStream()
    let (near, far) = try await lanes(.zero) { [executor] lane, _ in
      #expect(lane.eventLoop.inEventLoop)
      executor.mustPerformHere {
        continuation.yield((LaneThread.current.currentValue != nil, lane.eventLoop.inEventLoop))
      }
    }
    var all = places.makeAsyncIterator()
    for number in 0..<100 {
      try near.0.send([.ping(number)])
      let place = try #require(await all.next())
      #expect(place.isReader)
      #expect(!place.isWithinTurn)
    }
    near.0.close(.noError)
    _ = await far.1.end()
  }

  // MARK: By itself

  @Test func isDoneInOrder() {
    let work = LaneWork(timeMax: .seconds(60))
    let order = Mutex<[Int]>([])
    for i in 0..<3 {
      let isAdded = work.add {
        order.withLock { $0.append(i) }
        // Comes after what is read next.
        let isAddedToo = work.add { order.withLock { $0.append(10 + i) } }
        #expect(isAddedToo)
      }
      #expect(isAdded)
    }
    let isAddedAtOnce = work.add({ Issue.record("nobody's work") }, atOnce: true)
    #expect(!isAddedAtOnce)
    #expect(work.run())
    #expect(order.withLock { $0 } == [0, 1, 2])
    #expect(!work.isEmpty)
    #expect(work.run())
    #expect(order.withLock { $0 } == [0, 1, 2, 10, 11, 12])
    #expect(work.isEmpty)
    let isAddedLast = work.add({ order.withLock { $0 = [] } }, atOnce: true)
    #expect(isAddedLast)
    #expect(work.run())
    #expect(order.withLock { $0 } == [])
  }

  /// The lane is read before more is done than takes half a millisecond.
  @Test func leavesWhatWouldKeepItFromReading() {
    let work = LaneWork()
    let count = Mutex(0)
    for _ in 0..<3 {
      let isAdded = work.add {
        usleep(600)
        count.withLock { $0 += 1 }
      }
      #expect(isAdded)
    }
    for done in 1...3 {
      #expect(!work.isEmpty)
      #expect(work.run())
      #expect(count.withLock { $0 } == done)
    }
    #expect(work.isEmpty)
  }

  /// Who is found at the same thing twice is relieved of the rest, unless too many are.
  @Test func isLeftToAnotherThread() {
    let work = LaneWork()
    let left = Mutex(0)
    @Sendable func isIdle() -> Bool { if case .isIdle = work.check(mayRelieve: true) { true } else { false } }
    @Sendable func isUnderWay(_ mayRelieve: Bool) -> Bool {
      if case .isUnderWay = work.check(mayRelieve: mayRelieve) { true } else { false }
    }
    #expect(isIdle())
    let items: [@Sendable () -> Void] = [
      {
        #expect(isUnderWay(true))
        for _ in 0..<3 { #expect(isUnderWay(false)) }
      },
      {
        #expect(isUnderWay(true))
        guard case .wasRelieved(let rest) = work.check(mayRelieve: true) else {
          Issue.record("nobody came")
          return
        }
        left.withLock { $0 = rest.count }
        #expect(isIdle())
        let isAdded = work.add { Issue.record("another's work") }
        #expect(!isAdded)
      },
      { Issue.record("another's work") },
    ]
    for item in items {
      let isAdded = work.add(item)
      #expect(isAdded)
    }
    #expect(work.isReaders)
    #expect(!work.run())
    #expect(!work.isReaders)
    #expect(left.withLock { $0 } == 1)
    #expect(work.isEmpty)
  }

  // MARK: On a lane's thread

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
      let isFirst = Atomic(true)
      let threads = Mutex<(busy: WeakThread, next: WeakThread)?>(nil)
      let (near, far) = try await lanes(pollTime) { [executor] _, _ in
        guard isFirst.exchange(false, ordering: .relaxed) else { return }
        let busy = Mutex<WeakThread?>(nil)
        executor.mustPerformHere {
          busy.withLock { $0 = WeakThread() }
          gate.wait()
          let reads = executor.performHere {}
          #expect(!reads)
        }
        executor.mustPerformHere {
          guard let first = busy.withLock({ $0 }) else {
            Issue.record("the second before the first")
            return
          }
          threads.withLock { $0 = (first, WeakThread()) }
        }
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
