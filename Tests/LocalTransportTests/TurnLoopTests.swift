import Dispatch
import Foundation
import NIOCore
import Synchronization
import Testing
import UnixSockets

@testable import LocalTransport

/// Who does the work of a loop without a thread, and when.
@Suite(.timeLimit(.minutes(5)))
struct TurnLoopTests {
  let loop: TurnLoop

  init() throws { loop = try TurnLoop() }

  @Test func doesWorkAtOnceWhenNobodyHasTheTurn() {
    let thread = ObjectIdentifier(Thread.current)
    let isDone = Mutex(false)
    loop.execute {
      #expect(ObjectIdentifier(Thread.current) == thread)
      #expect(loop.inEventLoop)
      isDone.withLock { $0 = true }
    }
    #expect(isDone.withLock { $0 })
    #expect(!loop.inEventLoop)
  }

  @Test func doesWorkOfWithinATurnAfterIt() {
    let order = Mutex<[Int]>([])
    loop.execute {
      loop.execute { order.withLock { $0.append(2) } }
      order.withLock { $0.append(1) }
    }
    #expect(order.withLock { $0 } == [1, 2])
  }

  @Test func leavesWorkToWhoHasTheTurn() async {
    let isTaken = DispatchSemaphore(value: 0)
    let mayGo = DispatchSemaphore(value: 0)
    let holder = Mutex<ObjectIdentifier?>(nil)
    Thread.detachNewThread {
      loop.execute {
        holder.withLock { $0 = ObjectIdentifier(Thread.current) }
        isTaken.signal()
        mayGo.wait()
      }
    }
    await waitOutside { isTaken.wait() }
    let worker: ObjectIdentifier = await withCheckedContinuation { continuation in
      // Returns at once, though the work is not done yet.
      loop.execute { continuation.resume(returning: ObjectIdentifier(Thread.current)) }
      mayGo.signal()
    }
    #expect(worker == holder.withLock { $0 })
  }

  /// Nothing is lost, nothing is done twice or beside other work, and each thread's work is in order: with a reader that takes its turns meanwhile.
  @Test func doesTheWorkOfManyThreadsOneAfterAnother() async {
    let (threads, count) = (8, 5_000)
    let state = Mutex((isWithin: false, next: [Int](repeating: 0, count: threads), faults: 0))
    let enter: @Sendable () -> Void = {
      state.withLock {
        if $0.isWithin { $0.faults += 1 }
        $0.isWithin = true
      }
    }
    let isReading = Atomic(true)
    let done = DispatchGroup()
    done.enter()
    Thread.detachNewThread {
      let thread = ObjectIdentifier(Thread.current)
      while isReading.load(ordering: .relaxed) {
        _ = loop.takeReadersTurn {
          enter()
          #expect(ObjectIdentifier(Thread.current) == thread)
          state.withLock { $0.isWithin = false }
        }
      }
      // Senders may have left their last work to it.
      _ = loop.takeReadersTurn {}
      done.leave()
    }
    let senders = DispatchGroup()
    for sender in 0..<threads {
      senders.enter()
      Thread.detachNewThread {
        for number in 0..<count {
          loop.execute {
            enter()
            state.withLock {
              if $0.next[sender] != number { $0.faults += 1 }
              $0.next[sender] = number + 1
              $0.isWithin = false
            }
          }
        }
        senders.leave()
      }
    }
    await waitOutside { senders.wait() }
    isReading.store(false, ordering: .relaxed)
    await waitOutside { done.wait() }
    #expect(state.withLock { $0.next } == [Int](repeating: count, count: threads))
    #expect(state.withLock { $0.faults } == 0)
  }

  /// Work that adds work does not keep the reader from reading, nor a sender from going on.
  @Test func leavesToTheReaderWhatDoesNotEnd() throws {
    let count = Mutex(0)
    @Sendable func again() {
      count.withLock { $0 += 1 }
      loop.execute { again() }
    }
    let wait = try #require(loop.takeReadersTurn { loop.execute { again() } })
    #expect(wait.isDue)
    let before = count.withLock { $0 }
    #expect(before > 0)
    // From outside of a turn, as a sender: it comes back, and the reader is wanted.
    loop.execute {}
    let after = count.withLock { $0 }
    #expect(after > before && after < before + 100)
    #expect(try #require(loop.takeReadersTurn {}).isDue)
  }

  // MARK: What the reader waits for

  @Test func saysWhatTheReaderWaitsFor() throws {
    let first = try #require(loop.takeReadersTurn {})
    #expect(first.deadline == nil && !first.isRoomWanted && !first.isDue)
    let (soon, late) = (NIODeadline.now() + .seconds(100), NIODeadline.now() + .seconds(200))
    let wait = try #require(
      loop.takeReadersTurn {
        loop.scheduleTask(deadline: late) {}
        loop.scheduleTask(deadline: soon) {}
        loop.isRoomWanted = true
      })
    #expect(wait.deadline == soon && wait.isRoomWanted && !wait.isDue)
    let ending = try #require(loop.takeReadersTurn { loop.isEnding = true })
    #expect(ending.isDue)
    #expect(loop.takeReadersTurn { loop.end() } == nil)
  }

  @Test func wakesTheReaderForWhatItDoesNotWaitFor() throws {
    let sockets = try SocketPair()
    let connection = try UnixConnection(adopting: Descriptor(adopting: sockets.near))
    defer { sockets.closeFar() }
    func isWoken() throws -> Bool {
      let isWoken = try connection.awaitReadiness(forRoom: false, or: loop.wakeup, until: .now)
        .contains(.woken)
      loop.wakeup.clear()
      return isWoken
    }
    _ = loop.takeReadersTurn {}
    loop.execute {}
    #expect(try !isWoken())
    let timer = loop.scheduleTask(in: .seconds(100)) {}
    #expect(try isWoken())
    // It comes by itself now.
    loop.scheduleTask(in: .seconds(50)) {}
    #expect(try !isWoken())
    _ = loop.takeReadersTurn {}
    loop.scheduleTask(in: .seconds(200)) {}
    timer.cancel()
    #expect(try !isWoken())
    loop.execute { loop.isRoomWanted = true }
    #expect(try isWoken())
    _ = loop.takeReadersTurn {}
    loop.execute { loop.isEnding = true }
    #expect(try isWoken())
    _ = loop.takeReadersTurn { loop.end() }
  }

  @Test func runsWhatIsDueInItsOrderAndNothingThatWasCancelled() async throws {
    let order = Mutex<[Int]>([])
    let begin = NIODeadline.now()
    let cancelled = loop.scheduleTask(deadline: begin) { order.withLock { $0.append(0) } }
    for number in [3, 1, 2] {
      loop.scheduleTask(deadline: begin + .nanoseconds(Int64(number))) {
        order.withLock { $0.append(number) }
      }
    }
    let late = loop.scheduleTask(in: .seconds(1000)) { order.withLock { $0.append(4) } }
    cancelled.cancel()
    await #expect(throws: EventLoopError.cancelled) { try await cancelled.futureResult.get() }
    try await Task.sleep(for: .milliseconds(1))
    _ = loop.takeReadersTurn {}
    #expect(order.withLock { $0 } == [1, 2, 3])
    _ = loop.takeReadersTurn { loop.end() }
    await #expect(throws: EventLoopError.shutdown) { try await late.futureResult.get() }
    let afterTheEnd = loop.scheduleTask(in: .seconds(0)) {}
    await #expect(throws: EventLoopError.shutdown) { try await afterTheEnd.futureResult.get() }
  }

  private func waitOutside(_ wait: @escaping @Sendable () -> Void) async {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        wait()
        continuation.resume()
      }
    }
  }
}

/// When a thread asks before it sleeps.
struct PollingTests {
  private static let time = Duration.microseconds(100)

  @Test func beginsAfterAShortWaitAndNotAfterALongOne() {
    var polling = Polling(time: Self.time)
    #expect(!polling.isDue)
    polling.waited(.milliseconds(10))
    #expect(!polling.isDue)
    polling.waited(.microseconds(300))
    #expect(polling.isDue)
    polling.found()
    #expect(polling.isDue)
  }

  /// In vain it costs what it is worth: from the second time on, half as often each time.
  @Test func isRarerEachTimeThatItIsInVain() {
    var polling = Polling(time: Self.time)
    polling.waited(.zero)
    for round in 1...14 {
      #expect(polling.isDue)
      polling.failed()
      var count = 0
      while !polling.isDue {
        polling.waited(.microseconds(200))
        count += 1
      }
      #expect(count == 1 << min(round, 10))
    }
    polling.found()
    polling.failed()
    polling.waited(.zero)
    polling.waited(.zero)
    #expect(polling.isDue)
  }

  @Test func neverBeginsWithoutTime() {
    var polling = Polling(time: .zero)
    polling.waited(.zero)
    #expect(!polling.isDue)
  }
}
