@preconcurrency import Dispatch
public import Foundation
import Locks

/// The time as an app's services know it: one clock that only goes on, the wall's, and timers.
///
/// Apps use ``SystemClock``. Tests move a `ManualClock` (of `AppKineticsTesting`) by hours at once.
public protocol AppClock: Sendable {
  /// The time since some moment of the past. It only goes on, also while the machine sleeps.
  var now: Duration { get }
  /// The wall clock, by which messages have time limits and keys their dates. Somebody may set it.
  var date: Date { get }
  /// A timer that is set to no time yet, and calls `wake` on a thread of the clock's.
  func makeTimer(_ wake: @escaping @Sendable () -> Void) -> any AppTimer
}

/// A timer of an ``AppClock``.
public protocol AppTimer: AnyObject, Sendable {
  /// Wakes once at this time of ``AppClock/now``, or soon after it, and not at the one that was set before.
  func set(to time: Duration)
  /// Wakes nobody any more. A call of `wake` may be under way.
  func cancel()
}

extension AppClock {
  /// Waits for so long, or until the task is cancelled: then throws `CancellationError`.
  public func sleep(for time: Duration) async throws {
    let (wakes, waking) = AsyncStream.makeStream(of: Void.self)
    let timer = makeTimer { waking.finish() }
    defer { timer.cancel() }
    timer.set(to: now + time)
    // It ends with the task, too.
    for await _ in wakes {}
    try Task.checkCancellation()
  }
}

/// The machine's clocks.
public struct SystemClock: AppClock {
  /// An hour before somebody asked first.
  private static let begin = ContinuousClock.now - .seconds(3600)

  public init() {}

  public var now: Duration { Self.begin.duration(to: .now) }
  public var date: Date { Date() }
  public func makeTimer(_ wake: @escaping @Sendable () -> Void) -> any AppTimer { SystemTimer(self, wake) }
}

/// The system's timers stand still while the machine sleeps: a long one looks at the clock every minute.
private final class SystemTimer: AppTimer {
  private let clock: SystemClock
  private let source: any DispatchSourceTimer
  /// Nil when it was not set, or has woken.
  private let time = Guarded<Duration?>(nil)
  private static let pauseMax = Duration.seconds(60)

  init(_ clock: SystemClock, _ wake: @escaping @Sendable () -> Void) {
    self.clock = clock
    source = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "opendynamics.services.timer"))
    source.setEventHandler { [weak self] in
      if self?.isDue == true { wake() }
    }
    source.activate()
  }

  deinit { source.cancel() }

  func set(to time: Duration) {
    self.time.withLock {
      $0 = time
      schedule(time)
    }
  }

  func cancel() {
    time.withLock { $0 = nil }
    source.cancel()
  }

  /// Under the lock.
  private func schedule(_ time: Duration) {
    let pause = min(max(time - clock.now, .zero), Self.pauseMax)
    source.schedule(
      deadline: .now() + .milliseconds(Int(pause.milliseconds) + 1), leeway: .milliseconds(10))
  }

  private var isDue: Bool {
    time.withLock { time in
      guard let set = time else { return false }
      guard clock.now < set else {
        time = nil
        return true
      }
      schedule(set)
      return false
    }
  }
}
