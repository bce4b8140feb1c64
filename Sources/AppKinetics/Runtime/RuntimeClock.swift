@preconcurrency import Dispatch
import Locks

/// The time as a runtime knows it, and who wakes it: the system, or a test.
protocol RuntimeClock: Sendable {
  /// Milliseconds; only goes on.
  var now: UInt64 { get }
  /// Calls from now on when it is to wake somebody.
  func start(_ wake: @escaping @Sendable () -> Void)
  /// To be called at this time, or soon after it, and not at the one that was asked for before.
  func wake(at time: UInt64)
  func stop()
}

extension Duration {
  /// Whole milliseconds: 0 for a negative duration, and the most that fit for one that is longer.
  var milliseconds: UInt64 {
    let (seconds, attoseconds) = components
    guard seconds >= 0, attoseconds >= 0 else { return 0 }
    let longest = UInt64(Int64.max)
    let (whole, overflows) = UInt64(seconds).multipliedReportingOverflow(by: 1000)
    return overflows ? longest : min(longest, whole + UInt64(attoseconds) / 1_000_000_000_000_000)
  }
}

/// A timer of the system's, which begins with ``start(_:)``.
final class SystemClock: RuntimeClock {
  private let timer = Guarded<(any DispatchSourceTimer)?>(nil)

  deinit { stop() }

  var now: UInt64 { DispatchTime.now().uptimeNanoseconds / 1_000_000 }

  func start(_ wake: @escaping @Sendable () -> Void) {
    let source = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "opendynamics.services.timer"))
    source.setEventHandler(handler: wake)
    source.activate()
    timer.withLock { $0 = source }
  }

  func wake(at time: UInt64) {
    let pause = DispatchTimeInterval.milliseconds(Int(clamping: time - min(time, now)))
    timer.withLock { $0?.schedule(deadline: .now() + pause, leeway: .milliseconds(10)) }
  }

  func stop() {
    timer.withLock { $0.take()?.cancel() }
  }
}
