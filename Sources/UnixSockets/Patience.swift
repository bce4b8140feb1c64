#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Bounds how long a starter waits for what may be the remains of a process that ended: a child between fork(2) and exec(2) keeps
/// its parent's locks and listening sockets alive. A starter cannot tell such a child from another process.
package struct Patience {
  private var milliseconds: UInt32 = 1

  package init() {}

  /// Waits 1, 2, 4 … 128 ms, 255 ms in all. Returns `false` at once when that time is over.
  package mutating func wait() -> Bool {
    guard milliseconds <= 128 else { return false }
    usleep(milliseconds * 1000)
    milliseconds *= 2
    return true
  }
}
