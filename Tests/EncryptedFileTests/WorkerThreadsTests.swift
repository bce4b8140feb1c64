import EncryptedFile
import Foundation
import Locks
import SodiumPrimitives
import Testing

@Suite(.timeLimit(.minutes(1)))
struct WorkerThreadsTests {
  private struct Broken: Error, Equatable { var index = 0 }

  /// What the bodies of a test tell each other.
  private final class Board: Sendable {
    let indexes = Guarded<[Int]>([])
    let threads = Guarded<Set<UInt>>([])

    func note(_ index: Int) {
      indexes.withLock { $0.append(index) }
      threads.withLock { _ = $0.insert(Self.currentThread) }
    }
    var noted: [Int] { indexes.withLock { $0 } }

    static var currentThread: UInt { UInt(bitPattern: ObjectIdentifier(Thread.current)) }

    /// Whether so many indexes were noted before ten seconds were over.
    func waits(for count: Int) -> Bool {
      for _ in 0..<10_000 {
        if indexes.withLock({ $0.count >= count }) { return true }
        usleep(1_000)
      }
      return false
    }
  }

  private func with(_ count: Int, _ body: (WorkerThreads) throws -> Void) rethrows {
    let workers = WorkerThreads(count: count)
    defer { workers.stop() }
    try body(workers)
  }

  @Test(arguments: [1, 2, 8])
  func runsEveryIndexExactlyOnce(count: Int) throws {
    let board = Board()
    try with(count) { workers in
      for jobs in [0, 1, count, 1_000] { try workers.forEach(jobs) { _, index in board.note(index) } }
    }
    #expect(board.noted.sorted() == ([0] + Array(0..<count) + Array(0..<1_000)).sorted())
  }

  @Test func beginsInOrder() throws {
    let board = Board()
    try with(1) { workers in try workers.forEach(200) { _, index in board.note(index) } }
    #expect(board.noted == Array(0..<200))
  }

  @Test func beginsAsManyAsThereAreThreadsTheFirstOnesFirst() throws {
    let board = Board()
    let first = Guarded<[Int]>([])
    try with(4) { workers in
      try workers.forEach(12) { _, index in
        board.note(index)
        // Nobody ends before four have begun, so they run at the same time.
        guard board.waits(for: 4) else { throw Broken(index: index) }
        first.withLock { if $0.isEmpty { $0 = Array(board.noted.prefix(4)) } }
      }
    }
    #expect(first.withLock { $0.sorted() } == [0, 1, 2, 3])
  }

  /// Whoever waits for a single piece of work does not wait for all of a large job.
  @Test func singlePiecesOfWorkComeBeforeTheRestOfAJob() throws {
    let board = Board()
    try with(1) { workers in
      try workers.forEach(100) { _, index in
        board.note(index)
        if index == 3 { _ = workers.begin { _ in board.note(-1) } }
      }
    }
    #expect(board.noted == Array(0...3) + [-1] + Array(4..<100))
  }

  @Test func bodiesRunOnTheirOwnThreads() throws {
    let board = Board()
    try with(3) { workers in try workers.forEach(300) { _, index in board.note(index) } }
    let threads = board.threads.withLock { $0 }
    #expect((1...3).contains(threads.count))
    #expect(!threads.contains(Board.currentThread))
  }

  @Test func eachThreadHasACipherAndBuffersOfAUnit() throws {
    let seen = Guarded<Set<ObjectIdentifier>>([])
    let board = Board()
    let workers = WorkerThreads(count: 2, backend: .libsodium)
    defer { workers.stop() }
    try workers.forEach(2) { context, index in
      board.note(index)
      guard board.waits(for: 2) else { throw Broken() }
      seen.withLock { _ = $0.insert(ObjectIdentifier(context)) }
      #expect(context.cipher.stream.backend == .libsodium)
      #expect(context.input.count >= 64 * 16425 && context.output.count == context.input.count)
      #expect(context.input.count == WorkerContext.bufferByteCount)
      context.input[context.input.count - 1] = 1
      context.output[context.output.count - 1] = 2
      #expect(context.input[context.input.count - 1] == 1)
    }
    #expect(seen.withLock { $0.count } == 2)
  }

  // MARK: Errors

  @Test func firstErrorStopsTheRestAndIsThrown() throws {
    let board = Board()
    with(1) { workers in
      #expect(throws: Broken(index: 5)) {
        try workers.forEach(100) { _, index in
          board.note(index)
          if index >= 5 { throw Broken(index: index) }
        }
      }
    }
    #expect(board.noted == Array(0...5))
  }

  @Test func errorWaitsForBodiesThatAreRunning() throws {
    let board = Board()
    let ended = Guarded(0)
    with(4) { workers in
      #expect(throws: Broken.self) {
        try workers.forEach(1_000) { _, index in
          board.note(index)
          guard board.waits(for: 4) else { return }
          if index == 2 { throw Broken(index: 2) }
          usleep(20_000)
          ended.withLock { $0 += 1 }
        }
      }
      #expect(ended.withLock { $0 } == board.noted.count - 1, "a body ran on after the error was thrown")
      #expect(board.noted.count < 1_000)
    }
  }

  @Test func errorOfOneJobLeavesTheNextAlone() throws {
    try with(2) { workers in
      #expect(throws: Broken.self) { try workers.forEach(10) { _, _ in throw Broken() } }
      let board = Board()
      try workers.forEach(10) { _, index in board.note(index) }
      #expect(board.noted.count == 10)
    }
  }

  // MARK: Poll

  @Test func pollRunsOnTheCallingThreadWhileBodiesRun() throws {
    let polls = Guarded(0)
    let caller = Board.currentThread
    let others = Guarded(0)
    let patience = Board()
    try with(2) { workers in
      try workers.forEach(
        4,
        poll: {
          polls.withLock { $0 += 1 }
          if Board.currentThread != caller { others.withLock { $0 += 1 } }
          patience.note(0)
        }
      ) { _, _ in
        // The job ends only because poll was called.
        guard patience.waits(for: 2) else { throw Broken() }
      }
    }
    #expect(polls.withLock { $0 } >= 2)
    #expect(others.withLock { $0 } == 0)
  }

  @Test func pollCanCancel() throws {
    let board = Board()
    with(2) { workers in
      #expect(throws: Broken(index: -1)) {
        try workers.forEach(100_000, poll: { throw Broken(index: -1) }) { _, index in
          board.note(index)
          usleep(500)
        }
      }
      let begun = board.noted.count
      #expect(begun < 100_000)
      usleep(20_000)
      #expect(board.noted.count == begun, "a body began after the job had ended")
    }
  }

  // MARK: Callers and ends

  @Test(arguments: [1, 3])
  func servesManyCallersAtOnce(count: Int) {
    let workers = WorkerThreads(count: count)
    let boards = (0..<24).map { _ in Board() }
    let failures = Guarded(0)
    runOnThreads(boards.count) { caller in
      do {
        for _ in 0..<5 {
          try workers.forEach(20, poll: caller.isMultiple(of: 2) ? {} : nil) { _, index in
            boards[caller].note(index)
            if caller == 7, index == 19 { throw Broken() }
          }
        }
      } catch {
        failures.withLock { $0 += 1 }
      }
    }
    workers.stop()
    for (caller, board) in boards.enumerated() {
      let times = caller == 7 ? 1 : 5
      #expect(board.noted.sorted() == (0..<20).flatMap { [Int](repeating: $0, count: times) })
    }
    #expect(failures.withLock { $0 } == 1, "an error goes to its own caller only")
  }

  @Test func worksAgainAfterStop() throws {
    let workers = WorkerThreads(count: 2)
    workers.stop()
    for _ in 0..<3 {
      let board = Board()
      try workers.forEach(50) { _, index in board.note(index) }
      #expect(board.noted.count == 50)
      workers.stop()
      workers.stop()
    }
  }

  /// A container that is closed on one thread while another imports: the import ends or fails, but does not hang.
  @Test(arguments: [1, 3])
  func stopLetsJobsThatAreWaitingEnd(count: Int) {
    let workers = WorkerThreads(count: count)
    let board = Board()
    runOnThreads(4) { role in
      if role == 0 {
        _ = board.waits(for: 2)
        workers.stop()
      } else {
        try? workers.forEach(40) { _, index in
          board.note(index)
          usleep(1_000)
        }
      }
    }
    workers.stop()
    #expect(board.noted.count == 120)
  }

  @Test func stopAndJobsFromManyThreadsDoNotGetInEachOthersWay() {
    let workers = WorkerThreads(count: 2)
    let board = Board()
    runOnThreads(12) { role in
      for _ in 0..<50 {
        if role < 4 {
          workers.stop()
        } else {
          try? workers.forEach(3) { _, index in board.note(index) }
        }
      }
    }
    workers.stop()
    #expect(board.noted.count == 8 * 50 * 3)
  }

  @Test func wontBeMadeWithoutThreads() async {
    await #expect(processExitsWith: .failure) { _ = WorkerThreads(count: 0) }
  }

  /// Blocks until all have ended; the cooperative pool is too narrow for callers that block.
  private func runOnThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
    let group = DispatchGroup()
    for number in 0..<count {
      group.enter()
      Thread.detachNewThread {
        body(number)
        group.leave()
      }
    }
    group.wait()
  }
}
