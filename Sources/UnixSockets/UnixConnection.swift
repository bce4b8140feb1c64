import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// One end of a connected Unix stream socket; closed at its end.
///
/// The connection cannot be copied. To read on one thread, write on another and end both with ``shutdown(_:)``, keep it as a `let` of
/// a class: a descriptor that is closed while a call uses it could become another file under that call, and here it cannot.
///
/// No call raises `SIGPIPE`. Each call works in blocking mode and without it; the mode is for others that are given the descriptor.
public struct UnixConnection: ~Copyable, Sendable {
  let descriptor: Descriptor

  /// Takes over a connected Unix stream socket, as it came from another process.
  ///
  /// Throws ``SocketError/notASocket(path:)`` for anything else, which is closed.
  public init(adopting descriptor: consuming Descriptor) throws(SocketError) {
    guard try check(cposix_is_unix_stream(descriptor.number), "getsockopt") == 1 else {
      throw .notASocket(path: nil)
    }
    try check(cposix_adopt_socket(descriptor.number), "fcntl")
    self.descriptor = descriptor
  }

  /// A socket that this module made.
  init(made number: Int32) { descriptor = Descriptor(made: number) }

  /// The number of the descriptor, valid as long as this value lives.
  public var descriptorNumber: Int32 { descriptor.number }

  /// The descriptor, for whoever takes the connection over: an event loop, or another process.
  public consuming func takeDescriptor() -> Descriptor { descriptor }

  /// Who is at the other end, as the kernel saw it when the connection was made.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public func peerCredentials() throws(SocketError) -> PeerCredentials { try PeerCredentials(of: descriptor) }
}

extension UnixConnection {
  #if os(Linux)
    /// Whether the other end is closed by now, or this one was shut down. What was sent before that can still be read.
    package var isClosedByPeer: Bool {
      var entry = pollfd(fd: descriptor.number, events: 0, revents: 0)
      return poll(&entry, 1, 0) > 0
    }
  #endif

  /// Which part of a connection ``shutdown(_:)`` ends.
  public enum Direction: Sendable {
    case reading, writing, both
  }

  /// Ends a direction, from any thread: calls that wait on the connection return, a reader here and there gets what was sent before
  /// and then the end, a writer gets ``SocketError/closed``. Does nothing when the connection has ended already.
  public func shutdown(_ direction: Direction = .both) {
    _ = cposix_shutdown(
      descriptor.number, direction == .writing ? 0 : 1, direction == .reading ? 0 : 1)
  }
}
