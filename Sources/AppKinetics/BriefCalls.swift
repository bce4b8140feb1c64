import Synchronization

/// Functions that are called by whoever worked on the state last, outside of it, one after another and in order.
final class BriefCalls: Sendable {
  private struct Guarded {
    var calls: [@Sendable () -> Void] = []
    var isRunning = false
  }

  private let guarded = Mutex(Guarded())

  func add(_ call: @escaping @Sendable () -> Void) { guarded.withLock { $0.calls.append(call) } }

  /// A call may add calls and work on the state: those are called after it.
  func run() {
    while true {
      let calls: [@Sendable () -> Void] = guarded.withLock { guarded in
        guard !guarded.isRunning, !guarded.calls.isEmpty else { return [] }
        guarded.isRunning = true
        defer { guarded.calls = [] }
        return guarded.calls
      }
      if calls.isEmpty { return }
      for call in calls { call() }
      guarded.withLock { $0.isRunning = false }
    }
  }
}
