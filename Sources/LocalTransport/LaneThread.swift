import Foundation
import NIOCore
import NIOPosix
import Synchronization
import UnixSockets

/// The thread that reads a lane's socket: waits for what comes, takes its turn on the lane's loop with it, and does what that sets off (`work`).
///
/// When one thing of that takes long, `LaneWatch` relieves it: another thread goes on as the lane's reader, and this one ends when it is done.
final class LaneThread: @unchecked Sendable {
  // Invariant: all but the constants is touched by the thread itself, which has no other reader. (`polling.time` is one.)
  static let current = ThreadSpecificVariable<LaneThread>()

  let executor: LaneExecutor
  /// What it does outside of its turns, for others.
  let work = LaneWork()
  private let loop: TurnLoop
  private let channel: SocketChannel
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
    LaneThread(channel, executor, pollTime: pollTime).start()
  }

  private func start() {
    Thread.detachNewThread {
      Thread.current.name = "lane"
      Self.current.currentValue = self
      LaneWatch.shared.add(self)
      self.run()
      LaneWatch.shared.remove(self, wasRelieved: !self.work.isReaders)
      Self.current.currentValue = nil
    }
  }

  /// To be called again and again, by the watch: whom it finds at the same thing twice, it relieves, if it may.
  func check(mayRelieve: Bool) -> LaneWork.Check {
    let result = work.check(mayRelieve: mayRelieve)
    if case .wasRelieved(let left) = result {
      let next = LaneThread(channel, executor, pollTime: polling.time)
      for work in left { _ = next.work.add(work) }
      next.start()
    }
    return result
  }

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
      var isRelieved = false
      Self.releasingAutomatically {
        isRelieved = !work.run()
        guard !isRelieved else { return }
        let input = input(wait)
        next = loop.takeReadersTurn { take(input) }
      }
      if isRelieved { return }
    }
    while !work.isEmpty, work.run() {}
  }

  private static func releasingAutomatically(_ body: () -> Void) {
    #if canImport(Darwin)
      autoreleasepool { body() }
    #else
      body()
    #endif
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
      guard work.isEmpty else { return .nothing }
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
