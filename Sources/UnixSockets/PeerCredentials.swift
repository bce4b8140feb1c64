import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The user and process at the other end of a connection, from the kernel.
///
/// They are those of whoever called connect(2) or listen(2), at that time, or of whoever made the socket pair: a process that
/// an end was handed to is not seen. The process may have ended since, and its id may be another's by now, so that only `user` and `group`
/// can decide anything.
public struct PeerCredentials: Equatable, Sendable {
  /// The effective user id.
  public let user: UInt32
  /// The effective group id.
  public let group: UInt32
  /// The process id, for reports; 0 when it cannot be seen from here (another pid namespace).
  public let process: Int32

  /// Throws ``SocketError/callFailed(operation:path:errno:)`` when the descriptor is not a connected Unix socket.
  public init(of descriptor: borrowing Descriptor) throws(SocketError) {
    var (user, group, process) = (UInt32(), UInt32(), Int32())
    try check(cposix_peer_credentials(descriptor.number, &user, &group, &process), "getsockopt")
    (self.user, self.group, self.process) = (user, group, process)
  }
}

/// Holds on to the process at the other end of a connection: its number is not another's as long as it runs.
public struct PeerProcess: ~Copyable {
  private let descriptor: Descriptor

  /// Nil where the system has no such thing (Linux before 6.5, other systems).
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``, for instance when the process is reaped already.
  public static func of(_ connection: borrowing UnixConnection) throws(SocketError) -> PeerProcess? {
    let number = cposix_peer_process(connection.descriptor.number)
    if number == -ENOPROTOOPT { return nil }
    try check(number, "getsockopt")
    return PeerProcess(descriptor: try Descriptor(adopting: number))
  }

  /// Whether the process has ended.
  public var hasEnded: Bool {
    var polled = pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0)
    return poll(&polled, 1, 0) != 0
  }
}
