import Locks

/// Holds up whoever comes to it while it is shut.
package final class TestGate: Sendable {
  private struct Fields {
    var isShut = false
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let guarded = Guarded(Fields())

  package var isShut: Bool { guarded.withLock { $0.isShut } }

  package func shut() { guarded.withLock { $0.isShut = true } }

  package func open() {
    guarded.withLock { $0.isShut = false }
    release()
  }

  /// Lets pass who waits now, and stays as it is.
  package func release() {
    let waiting = guarded.withLock { guarded in
      defer { guarded.waiting = [] }
      return guarded.waiting
    }
    for continuation in waiting { continuation.resume() }
  }

  /// Returns whether it had to wait.
  @discardableResult
  package func pass() async -> Bool {
    guard isShut else { return false }
    await withCheckedContinuation { continuation in
      let mayPass = guarded.withLock { guarded in
        if guarded.isShut { guarded.waiting.append(continuation) }
        return !guarded.isShut
      }
      if mayPass { continuation.resume() }
    }
    return true
  }
}
