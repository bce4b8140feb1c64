import Locks

/// The clock of a runtime, which counts milliseconds, and its timer.
final class RuntimeClock: Sendable {
  private let clock: any AppClock
  private let timer = Guarded<(any AppTimer)?>(nil)

  init(_ clock: any AppClock) { self.clock = clock }

  deinit { stop() }

  /// Milliseconds of a clock that only goes on.
  var now: UInt64 { clock.now.milliseconds }

  /// Calls from now on when it is to wake somebody.
  func start(_ wake: @escaping @Sendable () -> Void) { timer.withLock { $0 = clock.makeTimer(wake) } }

  /// Wakes at this time, or soon after it, and not at the one that was asked for before.
  func wake(at time: UInt64) { timer.withLock { $0?.set(to: .milliseconds(Int64(clamping: time))) } }

  func stop() { timer.withLock { $0.take()?.cancel() } }
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
