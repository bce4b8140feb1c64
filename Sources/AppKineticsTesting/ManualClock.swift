public import AppKinetics
@preconcurrency import Dispatch
public import Foundation
import Locks

/// A clock that a test moves: time limits, retries and dates of all apps that have it.
///
/// ```swift
/// import AppKineticsTesting
///
/// let clock = ManualClock()
/// var options = TestApps.Options()
/// options.clock = clock
/// let apps = try await TestApps(options)
/// clock.advance(by: .seconds(86_400))
/// await apps.stop()
/// ```
///
/// Computing, and the way between apps and the broker, still take their own time.
public final class ManualClock: AppClock {
  fileprivate struct State {
    var now = Duration.seconds(1_000)
    var date: Date
    var timers: [ObjectIdentifier: (time: Duration, number: Int, timer: ManualTimer)] = [:]
    var lastNumber = 0
  }
  private let state: Guarded<State>
  /// Held while a timer fires. Its body may advance the clock.
  private let waking = NSRecursiveLock()

  /// A clock whose date is this one until it is moved.
  public init(date: Date = Date()) { state = Guarded(State(date: date)) }

  public var now: Duration { state.withLock { $0.now } }
  public var date: Date { state.withLock { $0.date } }

  /// The time at which the next timer fires; nil when none is set for a later time than ``now``.
  public var nextWake: Duration? {
    state.withLock { state in state.timers.values.map(\.time).filter { $0 > state.now }.min() }
  }

  /// Advances the time and the date. Returns after every timer that was due by then has fired, in
  /// the order of their times.
  public func advance(by time: Duration) {
    precondition(time >= .zero, "time only goes on")
    wake(until: now + time)
  }

  private func wake(until end: Duration) {
    waking.lock()
    defer { waking.unlock() }
    var (last, count) = (Duration.zero, 0)
    while let due = state.withLock({ $0.takeNext(until: end) }) {
      due.wake()
      count = now == last ? count + 1 : 0
      last = now
      precondition(count < 1_000_000, "a timer is set for a time that has passed, again and again")
    }
  }

  /// Sets the wall clock, as somebody may at any time; nobody is woken.
  public func set(date: Date) { state.withLock { $0.date = date } }

  public func makeTimer(_ wake: @escaping @Sendable () -> Void) -> any AppTimer { ManualTimer(self, wake) }

  /// Fires a timer that is due already on another thread, unless ``advance(by:)`` does so first.
  fileprivate func set(_ timer: ManualTimer, to time: Duration) {
    let now = state.withLock { state in
      state.lastNumber += 1
      state.timers[ObjectIdentifier(timer)] = (time, state.lastNumber, timer)
      return state.now
    }
    if time <= now { DispatchQueue.global().async { self.wake(until: now) } }
  }

  fileprivate func remove(_ timer: ManualTimer) {
    state.withLock { _ = $0.timers.removeValue(forKey: ObjectIdentifier(timer)) }
  }
}

extension ManualClock.State {
  /// Removes the next timer that is due by `end`, and moves the time to it; to `end` when there is
  /// none.
  fileprivate mutating func takeNext(until end: Duration) -> ManualTimer? {
    let next = timers.values.min { ($0.time, $0.number) < ($1.time, $1.number) }
    guard let next, next.time <= end else {
      move(to: max(now, end))
      return nil
    }
    move(to: max(now, next.time))
    timers.removeValue(forKey: ObjectIdentifier(next.timer))
    return next.timer
  }

  fileprivate mutating func move(to time: Duration) {
    date += (time - now) / .seconds(1)
    now = time
  }
}

/// A timer of a ``ManualClock``, which holds it while it is set.
private final class ManualTimer: AppTimer {
  private let clock: ManualClock
  private let body: @Sendable () -> Void
  private let isCancelled = Guarded(false)

  init(_ clock: ManualClock, _ body: @escaping @Sendable () -> Void) {
    (self.clock, self.body) = (clock, body)
  }

  func set(to time: Duration) {
    if !isCancelled.withLock({ $0 }) { clock.set(self, to: time) }
  }

  func cancel() {
    isCancelled.withLock { $0 = true }
    clock.remove(self)
  }

  func wake() {
    if !isCancelled.withLock({ $0 }) { body() }
  }
}
