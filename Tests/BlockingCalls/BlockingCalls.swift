import CBlockingCalls
import Locks

/// Collects the system calls with which a task blocks its thread, which is one of a pool as wide as the machine.
package enum BlockingCalls {
  @TaskLocal private static var seen: Guarded<[String]>?

  /// Whether calls can be seen: on Linux, without sanitizers.
  package static let areSeen =
    cblocking_observe { name in
      guard let name else { return }
      // A thread that runs no task has no value of the task.
      BlockingCalls.seen?.withLock { $0.append(String(cString: name)) }
    } == 0

  /// Runs `body`, and returns the names of the calls that its task, or a child of it, has made on its own thread.
  package static func during(
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Void
  ) async rethrows -> [String] {
    precondition(areSeen, "enable tests that use this only where areSeen is true")
    let seen = Guarded<[String]>([])
    try await $seen.withValue(seen, operation: body)
    return seen.withLock { $0 }
  }
}
