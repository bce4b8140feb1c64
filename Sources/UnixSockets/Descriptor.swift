import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The one owner of an open file descriptor, which it closes at its end. The descriptor is closed by exec, too.
///
/// An error of `close(2)` is not reported: on a socket none means that anything was lost.
public struct Descriptor: ~Copyable, Sendable {
  /// Valid as long as this value lives; whoever keeps the number longer may meet another file under it.
  public let number: Int32

  /// Takes over a descriptor that nobody else closes, and lets exec close it.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)`` when the number is not an open descriptor.
  public init(adopting number: Int32) throws(SocketError) {
    try check(cposix_set_close_on_exec(number), "fcntl")
    self.number = number
  }

  /// A descriptor that this module made, closed by exec already.
  init(made number: Int32) { self.number = number }

  deinit { close(number) }

  /// The number, which from now on the caller has to close.
  public consuming func take() -> Int32 {
    let number = number
    discard self
    return number
  }

  /// Another descriptor of the same open file: position and modes are shared.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``, usually because too many files are open.
  public borrowing func duplicate() throws(SocketError) -> Descriptor {
    Descriptor(made: try check(cposix_duplicate(number), "fcntl"))
  }
}
