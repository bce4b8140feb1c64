import Dispatch
import Foundation
import Locks
import NIOCore
import Synchronization

/// What a lane's thread does outside of its turns: tasks, and calls of the app. Added by the thread itself, and what is left of a thread that it relieves before it begins.
final class LaneWork: Sendable {
  private struct Fields {
    var left = CircularBuffer<@Sendable () -> Void>(initialCapacity: 4)
    var isUnderWay = false
    /// Counts what was begun.
    var begun: UInt64 = 0
    /// Of the last check.
    var begunWhenChecked: UInt64 = 0
    var isRelieved = false
  }

  private let guarded = Guarded(Fields())
  private let timeMax: Duration

  /// After `timeMax` the lane is read before more is done.
  init(timeMax: Duration = .microseconds(500)) { self.timeMax = timeMax }

  /// False when another thread reads the lane by now, or, with `atOnce`, when other work is before it.
  func add(_ work: @escaping @Sendable () -> Void, atOnce: Bool = false) -> Bool {
    guarded.withLock { guarded in
      guard !guarded.isRelieved, !atOnce || guarded.left.isEmpty else { return false }
      guarded.left.append(work)
      return true
    }
  }

  var isEmpty: Bool { guarded.withLock { $0.left.isEmpty } }

  /// Whether its thread still reads the lane.
  var isReaders: Bool { guarded.withLock { !$0.isRelieved } }

  /// Does what is there: what that adds comes after what was received meanwhile. False when another thread reads the lane by now.
  func run() -> Bool {
    var count = guarded.withLock { guarded in
      guarded.isUnderWay = !guarded.left.isEmpty
      guarded.begun += 1
      return guarded.left.count
    }
    guard count > 0 else { return true }
    // When it is there to be seen.
    LaneWatch.shared.wake()
    let end = ContinuousClock.now + timeMax
    while count > 0, let work = next() {
      work()
      count -= 1
      if count > 0, ContinuousClock.now > end { break }
    }
    return guarded.withLock { guarded in
      guarded.isUnderWay = false
      return !guarded.isRelieved
    }
  }

  private func next() -> (@Sendable () -> Void)? {
    guarded.withLock { guarded in
      guard let work = guarded.left.popFirst() else { return nil }
      guarded.begun += 1
      return work
    }
  }

  enum Check {
    case isIdle
    case isUnderWay
    /// It was the same as at the last check: who works is relieved, of what is left, too.
    case wasRelieved(left: CircularBuffer<@Sendable () -> Void>)
  }

  func check(mayRelieve: Bool) -> Check {
    guarded.withLock { guarded in
      guard guarded.isUnderWay, !guarded.isRelieved else { return .isIdle }
      guard guarded.begun == guarded.begunWhenChecked else {
        guarded.begunWhenChecked = guarded.begun
        return .isUnderWay
      }
      guard mayRelieve else { return .isUnderWay }
      guarded.isRelieved = true
      defer { guarded.left = [] }
      return .wasRelieved(left: guarded.left)
    }
  }
}

/// Looks after the lanes' threads of the process while they work for others: who does one thing for longer than a tick, or two, is relieved.
///
/// Awake it costs whoever works next to nothing, and it sleeps when there was no work for a while.
final class LaneWatch: Sendable {
  static let shared = LaneWatch()

  private static let tickTime: UInt32 = 1000
  private static let idleTickCountMax = 20
  /// Threads that were relieved and are not done: when there are so many, the lanes of further ones wait for them.
  static let relievedCountMax = 64

  private let threads = Guarded<[ObjectIdentifier: LaneThread]>([:])
  private let relievedCount = Atomic(0)
  private let hasWork = Atomic(false)
  private let isAsleep = Atomic(true)
  private let hasBegun = Atomic(false)
  private let alarm = DispatchSemaphore(value: 0)

  func add(_ thread: LaneThread) {
    threads.withLock { $0[ObjectIdentifier(thread)] = thread }
    guard !hasBegun.exchange(true, ordering: .relaxed) else { return }
    Thread.detachNewThread {
      Thread.current.name = "lane watch"
      self.run()
    }
  }

  func remove(_ thread: LaneThread, wasRelieved: Bool) {
    threads.withLock { $0[ObjectIdentifier(thread)] = nil }
    if wasRelieved { relievedCount.subtract(1, ordering: .relaxed) }
  }

  /// Before work that may be long.
  func wake() {
    hasWork.store(true, ordering: .sequentiallyConsistent)
    guard isAsleep.load(ordering: .sequentiallyConsistent),
      isAsleep.exchange(false, ordering: .sequentiallyConsistent)
    else { return }
    alarm.signal()
  }

  /// Whether something is under way that may take long.
  private func check() -> Bool {
    var isUnderWay = false
    for thread in threads.withLock({ Array($0.values) }) {
      let mayRelieve = relievedCount.load(ordering: .relaxed) < Self.relievedCountMax
      switch thread.check(mayRelieve: mayRelieve) {
      case .isIdle: break
      case .isUnderWay: isUnderWay = true
      case .wasRelieved: relievedCount.add(1, ordering: .relaxed)
      }
    }
    return isUnderWay
  }

  private func run() {
    alarm.wait()
    var idleTickCount = 0
    while true {
      usleep(Self.tickTime)
      if hasWork.exchange(false, ordering: .sequentiallyConsistent) || idleTickCount == 0 {
        idleTickCount = check() ? 0 : 1
        continue
      }
      idleTickCount += 1
      guard idleTickCount > Self.idleTickCountMax else { continue }
      isAsleep.store(true, ordering: .sequentiallyConsistent)
      // Who has come meanwhile may not have seen that it sleeps.
      if hasWork.load(ordering: .sequentiallyConsistent),
        isAsleep.exchange(false, ordering: .sequentiallyConsistent)
      {
        continue
      }
      alarm.wait()
      idleTickCount = 0
    }
  }
}
