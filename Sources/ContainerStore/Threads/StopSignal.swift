import Dispatch
import Synchronization

/// A request to end background work. It wakes threads that wait for time to pass.
final class StopSignal: Sendable {
  private let flag = Atomic<Bool>(false)
  private let changed = DispatchSemaphore(value: 0)

  var isStopped: Bool { flag.load(ordering: .acquiring) }

  func stop() {
    flag.store(true, ordering: .releasing)
    changed.signal()
  }

  /// Waits for the given time, or until ``stop()`` is called. Returns whether ``stop()`` was
  /// called.
  func wait(nanoseconds: Int64) -> Bool {
    if changed.wait(timeout: .now() + .nanoseconds(Int(max(0, nanoseconds)))) == .success {
      changed.signal()  // for the next waiting thread
    }
    return isStopped
  }
}
