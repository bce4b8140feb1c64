import Locks

@testable import AppKinetics

/// A clock that a test sets.
final class ManualClock: RuntimeClock {
  private struct Fields {
    var now: UInt64 = 1_000_000
    var time: UInt64?
    var wake: (@Sendable () -> Void)?
  }

  private let fields = Guarded(Fields())

  var now: UInt64 { fields.withLock { $0.now } }
  var next: UInt64? { fields.withLock { $0.time } }
  func start(_ wake: @escaping @Sendable () -> Void) { fields.withLock { $0.wake = wake } }
  func wake(at time: UInt64) { fields.withLock { $0.time = time } }
  func stop() { fields.withLock { $0.wake = nil } }

  /// Lets so many milliseconds pass, and wakes whoever asked for it on the way.
  func advance(_ milliseconds: UInt64) {
    let end = now + milliseconds
    while true {
      let wake: (@Sendable () -> Void)? = fields.withLock { fields in
        guard let time = fields.time, time <= end else {
          fields.now = end
          return nil
        }
        fields.now = max(fields.now, time)
        fields.time = nil
        return fields.wake
      }
      guard let wake else { return }
      wake()
    }
  }
}
