import CPosix

/// The buffers of a socket, in bytes as the system counts them: Linux doubles what is asked for, to count its own records too, and
/// cuts it at `net.core.wmem_max` and `rmem_max`.
public struct BufferByteCounts: Equatable, Sendable {
  public var send: Int
  public var receive: Int

  public init(send: Int, receive: Int) {
    self.send = send
    self.receive = receive
  }
}

extension UnixConnection {
  /// What a call of others does when it would have to wait; the calls of this module work in both modes.
  public enum Mode: Sendable {
    case blocking, nonblocking
  }

  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public func bufferByteCounts() throws(SocketError) -> BufferByteCounts {
    BufferByteCounts(
      send: Int(try check(cposix_buffer_size(descriptor.number, 0), "getsockopt")),
      receive: Int(try check(cposix_buffer_size(descriptor.number, 1), "getsockopt")))
  }

  /// Asks for buffers of these sizes and returns what the system gave. Between Unix sockets on Linux only the sender's bounds what is
  /// on its way.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  @discardableResult
  public func setBufferByteCounts(_ counts: BufferByteCounts) throws(SocketError) -> BufferByteCounts {
    try check(cposix_set_buffer_size(descriptor.number, 0, Int32(clamping: counts.send)), "setsockopt")
    try check(cposix_set_buffer_size(descriptor.number, 1, Int32(clamping: counts.receive)), "setsockopt")
    return try bufferByteCounts()
  }

  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public func mode() throws(SocketError) -> Mode {
    try check(cposix_is_blocking(descriptor.number), "fcntl") == 1 ? .blocking : .nonblocking
  }

  /// The mode belongs to the open socket: whoever has another descriptor of this end, in another process too, gets it as well.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public func setMode(_ mode: Mode) throws(SocketError) {
    try check(cposix_set_blocking(descriptor.number, mode == .blocking ? 1 : 0), "fcntl")
  }
}
