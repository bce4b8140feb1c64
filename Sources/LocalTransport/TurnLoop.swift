import Dispatch
import Locks
import NIOCore
import Synchronization
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An event loop whose work is done in turns, by whichever thread comes: so what a thread sends, it sends itself.
///
/// Who has work while nobody has the turn takes it, and does the work at once; who comes meanwhile leaves the work to that one, and goes on. Only the loop's
/// reader waits for its turn: what is received is told on the reader's thread and no other. It also keeps the time for all.
final class TurnLoop: EventLoop, @unchecked Sendable {
  // Invariant: `timers`, `isRoomWanted`, `isEnding` and `hasEnded` are touched by the thread that has the turn, and by no other.
  private var timers: [Timer] = []
  /// The reader is to wait for room to write, too.
  var isRoomWanted = false
  /// The reader is to come, whatever it waits for.
  var isEnding = false
  private var hasEnded = false

  private struct Fields {
    var isTaken = false
    var isReaderWaiting = false
    /// Work for whoever has the turn.
    var tasks: [@Sendable () -> Void] = []
    /// What the reader waits for outside of its turns; nil when it comes anyway.
    var wait: Wait?
  }

  /// What the reader has to wait for.
  struct Wait {
    /// Nil for none, and in the past for what is due.
    var deadline: NIODeadline?
    var isRoomWanted: Bool

    var isDue: Bool { deadline.map { $0 <= .now() } ?? false }
  }

  private struct Timer {
    let number: UInt64
    let deadline: NIODeadline
    let run: () -> Void
    let fail: (any Error) -> Void
  }

  private let guarded = Guarded(Fields())
  private let readersTurn = DispatchSemaphore(value: 0)
  private let lastTimer = Atomic<UInt64>(0)
  /// The thread that has the turn; 0 for none.
  private let owner = Atomic<UInt>(0)
  let wakeup: Wakeup

  init() throws(SocketError) { wakeup = try Wakeup() }

  private static var thisThread: UInt {
    #if canImport(Glibc)
      UInt(pthread_self())
    #else
      UInt(bitPattern: pthread_self())
    #endif
  }

  var inEventLoop: Bool { owner.load(ordering: .relaxed) == Self.thisThread }

  // MARK: Turns

  func execute(_ task: @escaping @Sendable () -> Void) {
    if inEventLoop {
      guarded.withLock { $0.tasks.append(task) }
      return
    }
    let isMine = guarded.withLock { guarded in
      guarded.tasks.append(task)
      defer { guarded.isTaken = true }
      return !guarded.isTaken
    }
    guard isMine else { return }
    owner.store(Self.thisThread, ordering: .relaxed)
    _ = giveBack(isReader: false)
  }

  /// How often who has the turn does what has come meanwhile: the reader has to read, and a sender has work of its own.
  private static let batchCountMax = (reader: 1, sender: 16)

  /// Waits for the turn, does the work and what waits for somebody to do it, and returns what to wait for; nil when nothing more comes.
  /// From one thread only, and not within a turn.
  func takeReadersTurn(_ work: () -> Void) -> Wait? {
    let isMine = guarded.withLock { guarded in
      guarded.wait = nil
      guarded.isReaderWaiting = guarded.isTaken
      guarded.isTaken = true
      return !guarded.isReaderWaiting
    }
    if !isMine { readersTurn.wait() }
    owner.store(Self.thisThread, ordering: .relaxed)
    work()
    runTimers()
    return giveBack(isReader: true)
  }

  /// Does what came meanwhile, before the turn is free again or the reader's, to whom too much of it is left.
  private func giveBack(isReader: Bool) -> Wait? {
    var batchesLeft = isReader ? Self.batchCountMax.reader : Self.batchCountMax.sender
    while true {
      var tasks: [@Sendable () -> Void] = []
      var isWakeDue = false
      var isReaderNext = false
      var wait: Wait?
      guarded.withLock { guarded in
        guard guarded.tasks.isEmpty || guarded.isReaderWaiting || batchesLeft == 0 else {
          swap(&tasks, &guarded.tasks)
          batchesLeft -= 1
          return
        }
        owner.store(0, ordering: .relaxed)
        isReaderNext = guarded.isReaderWaiting
        guarded.isReaderWaiting = false
        guarded.isTaken = isReaderNext
        let isDue = isEnding || !guarded.tasks.isEmpty
        let next = Wait(deadline: isDue ? .uptimeNanoseconds(0) : nextDeadline, isRoomWanted: isRoomWanted)
        if isReader {
          wait = hasEnded ? nil : next
          guarded.wait = wait
        } else if let waited = guarded.wait {
          isWakeDue =
            (next.deadline ?? .distantFuture) < (waited.deadline ?? .distantFuture)
            || next.isRoomWanted && !waited.isRoomWanted
          if isWakeDue { guarded.wait = nil }
        }
      }
      guard !tasks.isEmpty else {
        if isReaderNext { readersTurn.signal() }
        if isWakeDue { wakeup.wake() }
        return wait
      }
      for task in tasks { task() }
    }
  }

  /// In the reader's last turn.
  func end() {
    hasEnded = true
    let left = timers
    timers = []
    for timer in left { timer.fail(EventLoopError.shutdown) }
  }

  // MARK: Time

  private var nextDeadline: NIODeadline? {
    timers.lazy.map(\.deadline).min()
  }

  private func runTimers() {
    guard !timers.isEmpty else { return }
    let now = NIODeadline.now()
    // One by one: each may cancel others.
    while let next = timers.indices.min(by: { timers[$0].deadline < timers[$1].deadline }),
      timers[next].deadline <= now
    {
      timers.remove(at: next).run()
    }
  }

  @discardableResult
  func scheduleTask<T>(
    deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T
  ) -> Scheduled<T> {
    let promise = makePromise(of: T.self)
    let number = lastTimer.add(1, ordering: .relaxed).newValue
    let scheduled = Scheduled(promise: promise) {
      self.inTurn { self.timers.removeAll { $0.number == number } }
    }
    inTurn {
      guard !self.hasEnded else { return promise.fail(EventLoopError.shutdown) }
      self.timers.append(
        Timer(
          number: number, deadline: deadline,
          run: { promise.assumeIsolated().completeWith(Result { try task() }) }, fail: { promise.fail($0) }))
    }
    return scheduled
  }

  @discardableResult
  func scheduleTask<T>(in time: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
    scheduleTask(deadline: .now() + time, task)
  }

  private func inTurn(_ work: @escaping @Sendable () -> Void) {
    if inEventLoop { work() } else { execute(work) }
  }

  /// It ends with its lane, and not before.
  func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
    queue.async { callback(EventLoopError.unsupportedOperation) }
  }
}
