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
/// What computes, and what travels between apps and the broker, takes the time that it takes.
public final class ManualClock: AppClock {
  fileprivate struct State {
    var now = Duration.seconds(1_000)
    var date: Date
    var timers: [ObjectIdentifier: (time: Duration, number: Int, timer: ManualTimer)] = [:]
    var lastNumber = 0
  }
  private let state: Guarded<State>

  /// A clock whose date is this one until it is moved.
  public init(date: Date = Date()) { state = Guarded(State(date: date)) }

  public var now: Duration { state.withLock { $0.now } }
  public var date: Date { state.withLock { $0.date } }

  /// When the next timer wakes somebody; nil when none is set.
  public var nextWake: Duration? { state.withLock { $0.timers.values.map(\.time).min() } }

  /// Lets so much time pass, on the wall too, and wakes on the way, in their order and on this thread, whoever asked for it.
  public func advance(by time: Duration) {
    precondition(time >= .zero, "time only goes on")
    let end = now + time
    while true {
      let due: ManualTimer? = state.withLock { state in
        let next = state.timers.values.min { ($0.time, $0.number) < ($1.time, $1.number) }
        guard let next, next.time <= end else {
          state.move(to: max(state.now, end))
          return nil
        }
        state.move(to: max(state.now, next.time))
        state.timers.removeValue(forKey: ObjectIdentifier(next.timer))
        return next.timer
      }
      guard let due else { return }
      due.wake()
    }
  }

  /// Sets the wall clock, as somebody may at any time; nobody is woken.
  public func set(date: Date) { state.withLock { $0.date = date } }

  public func makeTimer(_ wake: @escaping @Sendable () -> Void) -> any AppTimer { ManualTimer(self, wake) }

  /// A time that has come wakes at once, on another thread.
  fileprivate func set(_ timer: ManualTimer, to time: Duration) {
    let isDue = state.withLock { state in
      guard time > state.now else {
        state.timers[ObjectIdentifier(timer)] = nil
        return true
      }
      state.lastNumber += 1
      state.timers[ObjectIdentifier(timer)] = (time, state.lastNumber, timer)
      return false
    }
    if isDue { DispatchQueue.global().async { timer.wake() } }
  }

  fileprivate func remove(_ timer: ManualTimer) {
    state.withLock { _ = $0.timers.removeValue(forKey: ObjectIdentifier(timer)) }
  }
}

extension ManualClock.State {
  fileprivate mutating func move(to time: Duration) {
    let (seconds, attoseconds) = (time - now).components
    date += Double(seconds) + Double(attoseconds) / 1e18
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
