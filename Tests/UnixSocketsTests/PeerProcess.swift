import Foundation
import TestSupport
import UnixSockets

/// A run of the program SocketPeer; killed and reaped with this value.
final class PeerProcess {
  let id: pid_t
  private let lines: UnixConnection
  private var isReaped = false

  /// Beside the test bundle's executable.
  private static let executable =
    URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    .appending(path: "SocketPeer").path

  init(_ arguments: String...) throws {
    let pair = try SocketPair()
    lines = pair.first
    let child = pair.second
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, child.descriptorNumber, 0)
    posix_spawn_file_actions_adddup2(&actions, child.descriptorNumber, 1)
    var argv = ([Self.executable] + arguments).map { strdup($0) }
    argv.append(nil)
    defer { for pointer in argv { free(pointer) } }
    var id: pid_t = 0
    let status = posix_spawn(&id, Self.executable, &actions, nil, argv, environ)
    self.id = id
    guard status == 0 else {
      isReaped = true
      throw TestFailure("posix_spawn \(Self.executable): \(status)")
    }
  }

  deinit { kill() }

  /// The next line that it says; the empty string at its end.
  func line() throws -> String {
    var line: [UInt8] = []
    while let byte = try lines.read(1, deadline: minutes).first, byte != UInt8(ascii: "\n") {
      line.append(byte)
    }
    return String(decoding: line, as: UTF8.self)
  }

  func tell(_ line: String = "go") throws { try lines.write(Array((line + "\n").utf8), deadline: minutes) }

  /// Ends its input and waits until it has ended.
  func finish() {
    lines.shutdown(.writing)
    reap()
  }

  /// At any place, and until it is gone.
  func kill() {
    guard !isReaped else { return }
    _ = Foundation.kill(id, SIGKILL)
    reap()
  }

  private func reap() {
    var status: Int32 = 0
    while !isReaped {
      if waitpid(id, &status, 0) == id || errno != EINTR { isReaped = true }
    }
  }
}
