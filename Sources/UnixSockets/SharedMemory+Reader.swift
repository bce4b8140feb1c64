import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension SharedMemory {
  /// Memory of another process, as this one reads it.
  public final class Reader: Sendable {
    private let descriptor: Descriptor

    /// Takes over the descriptor of a ``SharedMemory``. Nil for anything else: another length, or a
    /// seal that is missing.
    public init?(_ descriptor: consuming Descriptor, byteCount: Int) {
      guard cposix_is_shared_memory(descriptor.number, Int64(byteCount)) == 1 else { return nil }
      self.descriptor = descriptor
    }

    /// Copies bytes out, on any thread. What the other process writes meanwhile may be among them.
    ///
    /// Throws ``SocketError/callFailed(operation:path:errno:)``.
    public func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) throws(SocketError) {
      var done = 0
      while done < buffer.count {
        let count = pread(
          descriptor.number, buffer.baseAddress! + done, buffer.count - done, off_t(offset + done))
        if count < 0, errno == EINTR { continue }
        guard count > 0 else {
          throw .callFailed(operation: "pread", path: nil, errno: count < 0 ? errno : EINVAL)
        }
        done += count
      }
    }
  }
}
