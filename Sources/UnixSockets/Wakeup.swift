import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Ends the waiting of a thread for a connection, from any other.
public struct Wakeup: ~Copyable, Sendable {
  fileprivate let reading: Descriptor
  /// Nil where one descriptor is both ends.
  private let writing: Descriptor?

  /// Throws ``SocketError/callFailed(operation:path:errno:)``, usually because too many files are open.
  public init() throws(SocketError) {
    var (readingNumber, writingNumber): (Int32, Int32) = (-1, -1)
    try check(cposix_open_wakeup(&readingNumber, &writingNumber), "eventfd or pipe")
    reading = Descriptor(made: readingNumber)
    writing = writingNumber == readingNumber ? nil : Descriptor(made: writingNumber)
  }

  /// Whoever waits goes on, or does not begin to wait: until it clears this.
  public func wake() {
    switch writing {
    case .some(let writing): cposix_wake(writing.number)
    case nil: cposix_wake(reading.number)
    }
  }

  /// Ready for reading when somebody woke.
  var descriptorNumber: Int32 { reading.number }

  public func clear() { cposix_clear_wakeup(reading.number) }
}

/// What a connection was found to be.
public struct ConnectionReadiness: OptionSet, Sendable {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// There are bytes, or the end.
  public static let reading = ConnectionReadiness(rawValue: 1)
  /// There is room, or the end.
  public static let writing = ConnectionReadiness(rawValue: 2)
  /// Somebody called ``Wakeup/wake()``, or a signal came.
  public static let woken = ConnectionReadiness(rawValue: 4)
}

// One thread that waits for everything that may happen on a connection.

extension UnixConnection {
  /// Reads what is there, without waiting: the number of bytes, 0 at the end of the stream, nil when nothing is there. Descriptors that come along are
  /// closed.
  ///
  /// Throws ``SocketError/closed`` when the other side was closed before it had read all, and ``SocketError/callFailed(operation:path:errno:)``.
  public func readAvailable(into buffer: UnsafeMutableRawBufferPointer) throws(SocketError) -> Int? {
    while true {
      let count = cposix_receive_whole(descriptor.number, buffer.baseAddress!, buffer.count, 0)
      if count >= 0 { return count }
      if -count == Int(EAGAIN) { return nil }
      if -count != Int(EINTR) { return try check(count, "recv") }
    }
  }

  /// Writes what there is room for, without waiting, and returns the number of bytes: 0 when there is no room.
  ///
  /// Throws ``SocketError/closed`` and ``SocketError/callFailed(operation:path:errno:)``.
  public func writeAvailable(_ bytes: UnsafeRawBufferPointer) throws(SocketError) -> Int {
    guard let start = bytes.baseAddress, bytes.count > 0 else { return 0 }
    while true {
      let count = cposix_send(descriptor.number, start, bytes.count, nil, 0, 0)
      if count >= 0 { return count }
      if -count == Int(EAGAIN) { return 0 }
      if -count != Int(EINTR) { return try check(count, "sendmsg") }
    }
  }

  /// Waits until there is something to read, or room to write when that is asked for, or ``Wakeup/wake()`` was called, or the deadline has passed: then the
  /// result is empty. A deadline of nil waits without limit.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public func awaitReadiness(
    forRoom isRoomWanted: Bool, or wakeup: borrowing Wakeup, until deadline: ContinuousClock.Instant?
  ) throws(SocketError) -> ConnectionReadiness {
    let bits = cposix_wait(
      descriptor.number, isRoomWanted ? 1 : 0, wakeup.reading.number, pollTimeout(until: deadline))
    return ConnectionReadiness(rawValue: try check(bits, "poll"))
  }
}
