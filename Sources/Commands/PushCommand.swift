import ArgumentParser
import ServiceBroker

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Hands over to `dynamics-push`, a program of its own: nobody who stores files needs an HTTP server.
struct PushCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push",
    abstract: "Messages from an app's server to the app: runs dynamics-push, a program of its own.",
    // Help is the other program's matter.
    helpNames: [])

  private static let program = "dynamics-push"

  @Argument(parsing: .captureForPassthrough, help: "What dynamics-push is given.")
  var arguments: [String] = []

  func run() throws { try Self.handOver(arguments) }

  /// Becomes `dynamics-push` with these words. Throws `pushMissing`.
  static func handOver(_ arguments: [String]) throws -> Never {
    for path in candidates() where access(path, X_OK) == 0 {
      withCStrings([program] + arguments) { _ = execv(path, $0) }
      throw CommandError.native("run", path, errno)
    }
    throw CommandError(.pushMissing)
  }

  /// Beside this program, and then in each directory of PATH.
  private static func candidates() -> [String] {
    var directories: [String] = []
    if let own = realpath("/proc/self/exe", nil) {
      directories.append(String(cString: own).split(separator: "/").dropLast().map { "/" + $0 }.joined())
      free(own)
    }
    let path = Environment.value("PATH") ?? ""
    directories += path.split(separator: ":").map(String.init)
    return directories.map { $0 + "/" + program }
  }
}
