import CPosix
import Dispatch
import Foundation
import Locks
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A program that the broker runs: in a session of its own, without a descriptor of the broker, and waited for.
final class ChildProgram: Sendable {
  private let process: pid_t
  private let isReaped = Guarded(false)

  /// Nil when it cannot be run, or nobody could wait for it. `ended` is called once, on a thread of its own, with whether the program exited with 0.
  init?(_ program: String, arguments: [String], ended: @escaping @Sendable (Bool) -> Void) {
    guard let process = Self.spawn([program] + arguments) else { return nil }
    self.process = process
    do {
      try DetachedThread.start("program") { [self] in ended(reap() == 0) }
    } catch {
      kill()
      _ = reap()
      return nil
    }
  }

  /// Waits for its end, and returns its status.
  private func reap() -> Int32 {
    var information = siginfo_t()
    // Its number stays its own until it is reaped, which `kill` must not miss.
    while waitid(P_PID, id_t(process), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    var status: Int32 = 0
    isReaped.withLock {
      while waitpid(process, &status, 0) < 0, errno == EINTR {}
      $0 = true
    }
    return status
  }

  /// Ends the program at once, with all of its process group. Does nothing when it has ended.
  func kill() { signal(SIGKILL) }

  /// Asks it to end, and ends it when it has not done so after a while.
  func end() {
    signal(SIGTERM)
    DispatchQueue.global().asyncAfter(deadline: .now() + Self.lastTime) { self.kill() }
  }

  private static let lastTime: TimeInterval = 5

  private func signal(_ number: Int32) {
    isReaped.withLock { if !$0 { _ = Foundation.kill(-process, number) } }
  }

  private static func spawn(_ words: [String]) -> pid_t? {
    var pointers = words.map { strdup($0) }
    defer { for pointer in pointers { free(pointer) } }
    pointers.append(nil)
    var process: pid_t = 0
    return cposix_spawn_detached(&process, pointers) == 0 ? process : nil
  }
}
