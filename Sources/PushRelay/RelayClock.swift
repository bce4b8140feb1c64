internal import Foundation

/// Time as the relay sees it.
package protocol RelayClock: Sendable {
  /// Milliseconds since 1970, UTC.
  func now() -> Int64

  /// Returns after that time, and throws `CancellationError` when the task is cancelled before.
  func sleep(milliseconds: Int64) async throws
}

package struct SystemClock: RelayClock {
  package init() {}

  package func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
  }

  package func sleep(milliseconds: Int64) async throws {
    try await Task.sleep(for: .milliseconds(milliseconds))
  }
}
