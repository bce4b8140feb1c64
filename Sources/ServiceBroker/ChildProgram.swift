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
  private let state: Guarded<State>
  private let changed = DispatchSemaphore(value: 0)

  private struct State {
    var isReaped = false
    /// Until then the number stays that of the process and of its group, also when the process has ended: others of the group may run on.
    var groupTime: DispatchTime
  }

  /// Nil when it cannot be run, or nobody could wait for it. `ended` is called once, on a thread of its own, with whether the program exited with 0.
  /// Without an environment it has the broker's. For `groupTime` seconds, ``end()`` and ``kill()`` reach what the program has left behind.
  init?(
    _ program: String, arguments: [String], environment: [String: String]? = nil,
    keepingGroupFor groupTime: TimeInterval = 0, ended: @escaping @Sendable (Bool) -> Void
  ) {
    guard let process = Self.spawn([program] + arguments, environment) else { return nil }
    self.process = process
    state = Guarded(State(groupTime: .now() + groupTime))
    do {
      try DetachedThread.start("program") { [self] in
        let end = cposix_await_exit(process)
        ended(end == 0)
        // When somebody else has waited for it, its number may be another's.
        if end >= 0 { awaitGroup() }
        reap()
      }
    } catch {
      kill()
      reap()
      return nil
    }
  }

  private func awaitGroup() {
    while case let until = state.withLock({ $0.groupTime }), until > .now() {
      _ = changed.wait(timeout: until)
    }
  }

  /// Waits for its end. Its number may be another's from then on.
  private func reap() {
    _ = cposix_await_exit(process)
    state.withLock {
      while waitpid(process, nil, 0) < 0, errno == EINTR {}
      $0.isReaped = true
    }
  }

  /// Ends the program at once, with all of its process group. Does nothing when that is gone.
  func kill() {
    signal(SIGKILL)
    state.withLock { $0.groupTime = .now() }
    changed.signal()
  }

  /// Asks the group to end, and ends it when it has not done so after a while.
  func end() {
    state.withLock { $0.groupTime = max($0.groupTime, .now() + 2 * Self.lastTime) }
    signal(SIGTERM)
    DispatchQueue.global().asyncAfter(deadline: .now() + Self.lastTime) { self.kill() }
  }

  private static let lastTime: TimeInterval = 5

  private func signal(_ number: Int32) {
    state.withLock { if !$0.isReaped { _ = Foundation.kill(-process, number) } }
  }

  private static func spawn(_ words: [String], _ environment: [String: String]?) -> pid_t? {
    var process: pid_t = 0
    let status = withCStrings(words) { words in
      guard let environment else { return cposix_spawn_detached(&process, words, nil) }
      return withCStrings(environment.map { "\($0)=\($1)" }) {
        cposix_spawn_detached(&process, words, $0)
      }
    }
    return status == 0 ? process : nil
  }

  // MARK: The environment of apps

  /// What of the broker's environment an app gets that it starts: who the user is and where things are. Whatever else the broker was
  /// given, secrets perhaps, is not for apps.
  static func appEnvironment(_ own: [String: String], broker socketPath: String) -> [String: String] {
    var environment = own.filter { name, _ in
      appVariables.contains(name) || name.hasPrefix("LC_") || name.hasPrefix("XDG_")
    }
    environment["OPENDYNAMICS_BROKER"] = socketPath
    return environment
  }

  private static let appVariables: Set = [
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TZ", "LANG", "DISPLAY", "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
  ]
}

/// Lends `body` words as the calls take them that start a program: a list that ends with nil.
package func withCStrings<R>(_ texts: [String], _ body: ([UnsafeMutablePointer<CChar>?]) throws -> R) rethrows
  -> R
{
  let pointers = texts.map { strdup($0) }
  defer { for pointer in pointers { free(pointer) } }
  return try body(pointers + [nil])
}
