import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

// The bulk lane: whole buffers, on threads that may block. `shutdown` from another thread ends a call that waits.

extension UnixConnection {
  /// Reads until the buffer is full or the stream ends, and returns the number of bytes: fewer than the buffer has only at the end.
  /// A deadline of nil waits without limit.
  ///
  /// Throws ``SocketError/timedOut(operation:)`` or ``SocketError/closed`` (the other side was closed before it had read all);
  /// bytes read by then are lost, so that the connection is of no further use. Descriptors that come along are closed.
  public func read(
    into buffer: UnsafeMutableRawBufferPointer, deadline: ContinuousClock.Instant?
  ) throws(SocketError) -> Int {
    var done = 0
    while done < buffer.count {
      let count = cposix_receive_whole(
        descriptor.number, buffer.baseAddress! + done, buffer.count - done, deadline == nil ? 1 : 0)
      switch -count {
      case 0: return done
      case Int(EINTR): continue
      case Int(EAGAIN): try wait(for: .reading, of: descriptor.number, until: deadline, "read")
      default: done += try check(count, "recv")
      }
    }
    return done
  }

  /// Fills the buffer. A deadline of nil waits without limit.
  ///
  /// Throws as ``read(into:deadline:)``, and ``SocketError/closed`` when the stream ends before the buffer is full.
  public func readWhole(
    into buffer: UnsafeMutableRawBufferPointer, deadline: ContinuousClock.Instant?
  ) throws(SocketError) {
    guard try read(into: buffer, deadline: deadline) == buffer.count else { throw .closed }
  }

  /// Writes all bytes. A deadline of nil waits without limit.
  ///
  /// Throws ``SocketError/closed``, or ``SocketError/timedOut(operation:)``; how many bytes the other side got is unknown then, so that
  /// the connection is of no further use.
  public func write(
    _ bytes: UnsafeRawBufferPointer, deadline: ContinuousClock.Instant?
  ) throws(SocketError) {
    var done = 0
    while done < bytes.count {
      let count = cposix_send(
        descriptor.number, bytes.baseAddress! + done, bytes.count - done, nil, 0, deadline == nil ? 1 : 0)
      switch -count {
      case Int(EINTR): continue
      case Int(EAGAIN): try wait(for: .writing, of: descriptor.number, until: deadline, "write")
      default: done += try check(count, "sendmsg")
      }
    }
  }
}
