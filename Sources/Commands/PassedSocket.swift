import ArgumentParser
import Foundation
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A listening socket that a service manager hands over, as sd_listen_fds(3) has it: `LISTEN_FDS` of them, from 3 on, for the process
/// that `LISTEN_PID` names.
enum PassedSocket {
  private static let firstNumber: Int32 = 3

  /// The descriptor, and the path at which it listens; nil when there is none. Programs that this one starts do not see the variables.
  ///
  /// Throws `ValidationError` for what is not exactly one socket that listens at a path.
  static func take(_ environment: [String: String] = ProcessInfo.processInfo.environment) throws -> (
    descriptor: Int32, path: String
  )? {
    guard let count = try count(environment) else { return nil }
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(name) }
    guard count == 1 else {
      throw ValidationError("The service manager hands over \(count) sockets; the broker has one.")
    }
    guard let path = try UnixListener.path(ofListening: firstNumber) else {
      throw ValidationError(
        "What the service manager hands over is no Unix stream socket that listens at a path.")
    }
    return (firstNumber, path)
  }

  /// Nil when they are for another process, or there are none.
  static func count(_ environment: [String: String]) throws -> Int? {
    guard let process = environment["LISTEN_PID"], Int32(process) == getpid(),
      let text = environment["LISTEN_FDS"]
    else { return nil }
    guard let count = Int(text), count >= 0 else {
      throw ValidationError("LISTEN_FDS is no number.")
    }
    return count == 0 ? nil : count
  }
}
