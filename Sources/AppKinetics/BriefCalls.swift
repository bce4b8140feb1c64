import Dispatch
import Synchronization

/// Functions that are called where requests are received, outside of the work on the state, one after another and in order. What another thread has
/// worked on is called on a queue: an app's own call never runs a handler within it.
final class BriefCalls: Sendable {
  private struct Guarded {
    var calls: [@Sendable () -> Void] = []
    var isRunning = false
  }

  private let guarded = Mutex(Guarded())
  private let queue = DispatchQueue(label: "opendynamics.services.brief")

  func add(_ call: @escaping @Sendable () -> Void) { guarded.withLock { $0.calls.append(call) } }

  func run(isReceiving: Bool) {
    if isReceiving { return run() }
    guard guarded.withLock({ !$0.calls.isEmpty && !$0.isRunning }) else { return }
    queue.async { self.run() }
  }

  /// A call may add calls and work on the state: those are called after it.
  private func run() {
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
