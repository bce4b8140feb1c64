import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension UnixConnection {
  /// Connects to the listener at a path. It waits while the listener's queue is full (on Linux; Darwin refuses then), until the deadline;
  /// nil waits without limit.
  ///
  /// Throws ``SocketError/nobodyAnswers(path:)``, ``SocketError/pathTooLong(path:byteCountMax:)``, ``SocketError/notASocket(path:)``,
  /// ``SocketError/timedOut(operation:)``, or ``SocketError/callFailed(operation:path:errno:)``.
  ///
  /// Does not look at the directory: see ``SocketDirectory/check(_:_:)``.
  public static func dial(
    path: String, deadline: ContinuousClock.Instant?
  ) throws(SocketError) -> UnixConnection {
    try SocketPath.check(path)
    let connection = UnixConnection(made: try check(cposix_unix_socket(), "socket"))
    let number = connection.descriptorNumber
    while true {
      // A connection that waits for room in the queue shows nothing to poll(2): only this option bounds the wait.
      if let deadline {
        let microseconds = max(1, remaining(until: deadline, unit: .microseconds(1)))
        try check(cposix_set_send_timeout(number, microseconds), "setsockopt")
      }
      let status = cposix_unix_connect(number, path)
      switch -status {
      case EINTR: continue
      case EAGAIN, EINPROGRESS: throw .timedOut(operation: "connect")
      // Some systems say the same of a file that is no socket as of one without a listener.
      case ECONNREFUSED where SocketPath.kind(of: path) == .other, ENOTSOCK, EPROTOTYPE:
        throw .notASocket(path: path)
      case ECONNREFUSED, ENOENT: throw .nobodyAnswers(path: path)
      default: try check(status, "connect", path: path)
      }
      if deadline != nil { try check(cposix_set_send_timeout(number, 0), "setsockopt") }
      return connection
    }
  }
}
