import Locks

/// Counts the app's handlers that run, so that services may stop when they have returned.
final class RunningHandlers: Sendable {
  private struct Fields {
    var count = 0
    var isClosed = false
    var waiting: [@Sendable () -> Void] = []
  }

  private let guarded = Guarded(Fields())

  /// No handler begins from now on.
  func close() { guarded.withLock { $0.isClosed = true } }

  var isClosed: Bool { guarded.withLock { $0.isClosed } }

  /// Adds handlers whose turn has come.
  func begin(_ count: Int = 1) { guarded.withLock { $0.count += count } }

  /// A handler has returned, and its work on the runtime's state was asked for.
  func end() {
    let waiting = guarded.withLock { guarded in
      guarded.count -= 1
      guard guarded.count == 0 else { return [@Sendable () -> Void]() }
      defer { guarded.waiting = [] }
      return guarded.waiting
    }
    for body in waiting { body() }
  }

  /// Calls back when none runs: at once, or when the last one has returned.
  func whenNone(_ body: @escaping @Sendable () -> Void) {
    let isNone = guarded.withLock { guarded in
      if guarded.count > 0 { guarded.waiting.append(body) }
      return guarded.count == 0
    }
    if isNone { body() }
  }
}
