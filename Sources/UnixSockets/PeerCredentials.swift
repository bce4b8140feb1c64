import CPosix

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
