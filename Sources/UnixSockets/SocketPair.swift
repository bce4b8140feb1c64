import CPosix

/// Two connected stream sockets, as a broker makes them for two others.
///
/// The credentials that each end shows are those of the process that made the pair, also after the ends were handed on.
@frozen public struct SocketPair: ~Copyable, Sendable {
  public let first: UnixConnection
  public let second: UnixConnection

  /// Throws ``SocketError/callFailed(operation:path:errno:)``, usually because too many files are open.
  public init() throws(SocketError) {
    var numbers: [Int32] = [-1, -1]
    try check(cposix_unix_socket_pair(&numbers), "socketpair")
    first = UnixConnection(made: numbers[0])
    second = UnixConnection(made: numbers[1])
  }
}
