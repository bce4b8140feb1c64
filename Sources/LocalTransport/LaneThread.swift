import Foundation
import NIOCore
import NIOPosix
import Synchronization
import UnixSockets

/// Where tasks may run that send over lanes and wait for what comes back: where it is received, so that nothing goes from thread to thread.
///
/// What one of its lanes' threads sets off runs there, after what was received; everything else runs on a thread of its own.
package final class LaneExecutor: TaskExecutor {
  private let queue = DispatchQueue(label: "opendynamics.lanes.tasks")

  package init() {}

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    if let thread = LaneThread.current.currentValue, thread.executor === self { return thread.add(job) }
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}

/// The thread that reads a lane's socket: waits for what comes, and takes its turn on the lane's loop with it.
final class LaneThread: @unchecked Sendable {
  // Invariant: all but the constants is touched by the thread itself, which has no other reader; `add` is called on it.
  static let current = ThreadSpecificVariable<LaneThread>()

  let executor: LaneExecutor
  private let loop: TurnLoop
  private let channel: SocketChannel
  private var jobs: [UnownedJob] = []
  private var polling: Polling
  private var sizes = AdaptiveRecvByteBufferAllocator(minimum: 1024, initial: 4096, maximum: 65_536)
  private var buffer = ByteBuffer()

  /// Nothing else is seen to meanwhile.
  private static let pollTimeMax = Duration.milliseconds(1)

  private init(_ channel: SocketChannel, _ executor: LaneExecutor, pollTime: Duration) {
    self.channel = channel
    loop = channel.loop
    self.executor = executor
    polling = Polling(time: min(pollTime, Self.pollTimeMax))
  }

  static func start(_ channel: SocketChannel, _ executor: LaneExecutor, pollTime: Duration) {
    let thread = LaneThread(channel, executor, pollTime: pollTime)
    Thread.detachNewThread {
      Thread.current.name = "lane"
      current.currentValue = thread
      thread.run()
      current.currentValue = nil
    }
  }

  /// On this thread.
  func add(_ job: UnownedJob) { jobs.append(job) }

  private enum Input {
    case bytes(ByteBuffer)
    case end
    case failure(SocketError)
    /// There is room for what waits to be written.
    case room
    case nothing
  }

  private func run() {
    var next = loop.takeReadersTurn { channel.closeIfEnding() }
    while let wait = next {
      Self.releasingAutomatically {
        runJobs()
        let input = input(wait)
        next = loop.takeReadersTurn { take(input) }
      }
    }
    while !jobs.isEmpty { runJobs() }
  }

  private static func releasingAutomatically(_ body: () -> Void) {
    #if canImport(Darwin)
      autoreleasepool { body() }
    #else
      body()
    #endif
  }

  /// Those that are there: what they set off comes after what was received meanwhile.
  private func runJobs() {
    guard !jobs.isEmpty else { return }
    let batch = jobs
    jobs = []
    for job in batch { job.runSynchronously(on: executor.asUnownedTaskExecutor()) }
  }

  private func take(_ input: Input) {
    switch input {
    case .bytes(let bytes): channel.didRead(bytes)
    case .end: channel.didReadEnd()
    case .failure(let error): channel.readFailed(error)
    case .room: break
    case .nothing: channel.didReadAll()
    }
    // Also while more comes all the time.
    if loop.isRoomWanted { channel.flush() }
    channel.closeIfEnding()
  }

  // MARK: Waiting, outside of turns

  private func input(_ wait: TurnLoop.Wait) -> Input {
    guard let connection = channel.socket else { return .nothing }
    do throws(SocketError) {
      if let input = try received(connection) { return input }
      guard jobs.isEmpty else { return .nothing }
      let begin = ContinuousClock.now
      if polling.isDue, !wait.isRoomWanted, !wait.isDue, !ContentsUnderWay.isTrue, Self.beginPolling() {
        defer { Self.pollingCount.subtract(1, ordering: .relaxed) }
        let left = wait.deadline.map { Duration.nanoseconds(($0 - .now()).nanoseconds) } ?? polling.time
        if let input = try polled(connection, until: begin + min(left, polling.time)) {
          polling.found()
          return input
        }
        // What a timer cut short was not in vain.
        if left >= polling.time { polling.failed() }
      }
      let left = wait.deadline.map { $0 - .now() }
      let readiness = try connection.connection.awaitReadiness(
        forRoom: wait.isRoomWanted, or: loop.wakeup,
        until: left.map { ContinuousClock.now + .nanoseconds(max(0, $0.nanoseconds)) })
      if readiness.contains(.reading) { polling.waited(ContinuousClock.now - begin) }
      if readiness.contains(.woken) { loop.wakeup.clear() }
      if wait.isRoomWanted, readiness.contains(.writing) { return .room }
      return readiness.contains(.reading) ? try received(connection) ?? .nothing : .nothing
    } catch {
      return .failure(error)
    }
  }

  private func polled(
    _ socket: SocketChannel.OpenSocket, until end: ContinuousClock.Instant
  ) throws(SocketError) -> Input? {
    repeat {
      // Whoever else wants the processor may be the one that the other side waits for.
      sched_yield()
      if let input = try received(socket) { return input }
    } while ContinuousClock.now < end
    return nil
  }

  /// Threads of this process that ask: no more than half of the processors.
  private static let pollingCount = Atomic<Int>(0)
  private static let pollingCountMax = ProcessInfo.processInfo.activeProcessorCount / 2

  private static func beginPolling() -> Bool {
    guard pollingCount.add(1, ordering: .relaxed).newValue > pollingCountMax else { return true }
    pollingCount.subtract(1, ordering: .relaxed)
    return false
  }

  private func received(_ socket: SocketChannel.OpenSocket) throws(SocketError) -> Input? {
    if buffer.capacity == 0 { buffer = sizes.buffer(allocator: channel.allocator) }
    let capacity = buffer.capacity
    buffer.clear(minimumCapacity: capacity)
    var count: Int?
    do {
      _ = try buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: capacity) { space in
        count = try socket.connection.readAvailable(into: space)
        return count ?? 0
      }
    } catch {
      throw error as? SocketError ?? .closed
    }
    guard let count else { return nil }
    guard count > 0 else { return .end }
    let bytes = buffer
    buffer = ByteBuffer()
    _ = sizes.record(actualReadBytes: count)
    return .bytes(bytes)
  }
}

/// When a thread asks again and again for a moment before it sleeps: when what it waits for comes soon as a rule. To sleep and to be woken is most of what a
/// short call takes; to ask in vain takes a processor from others, so each time in vain makes it rarer.
struct Polling {
  /// How long it asks; zero for never.
  let time: Duration
  /// Short waits before it asks.
  private var shortWaitsLeft = 1
  private var failureCount = 0

  /// Without asking, a wait takes so many times as long: two threads are woken in it.
  private static let shortFactor = 5
  private static let failureCountMax = 10

  init(time: Duration) { self.time = time }

  var isDue: Bool { time > .zero && shortWaitsLeft == 0 }

  mutating func found() { failureCount = 0 }

  mutating func failed() {
    failureCount = min(failureCount + 1, Self.failureCountMax)
    shortWaitsLeft = 1 << failureCount
  }

  /// It slept, from the beginning of the wait.
  mutating func waited(_ duration: Duration) {
    if shortWaitsLeft > 0, duration <= time * Self.shortFactor { shortWaitsLeft -= 1 }
  }
}
