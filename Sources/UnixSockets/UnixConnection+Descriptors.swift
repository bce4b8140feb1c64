import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What one call received.
@frozen public struct ReceivedBytes: ~Copyable, Sendable {
  /// 0 at the end of the stream.
  public let byteCount: Int
  /// They came with the last message of these bytes: nothing that was sent after them is among the bytes, but on Linux bytes that
  /// were sent before may be.
  public var descriptors: DescriptorList
}

extension UnixConnection {
  /// Sends what the connection takes at once, with the descriptors, which stay open here: the receiver gets its own. Returns the
  /// number of bytes, at least 1, or nil when it takes nothing now and nothing was sent. The descriptors have gone with the
  /// first byte, so what is left of the bytes is sent without them. `bytes` is not empty: a stream carries no descriptor without a byte.
  ///
  /// Throws ``SocketError/closed``, ``SocketError/tooManyDescriptors(atLeast:countMax:)`` for more than ``DescriptorList/messageCountMax``, or
  /// ``SocketError/callFailed(operation:path:errno:)``, with `ETOOMANYREFS` when too many descriptors are on their way and
  /// nobody receives them.
  public func sendIfReady(
    _ bytes: UnsafeRawBufferPointer, descriptors: borrowing DescriptorList = DescriptorList()
  ) throws(SocketError) -> Int? {
    precondition(!bytes.isEmpty, "a stream carries nothing without a byte")
    guard descriptors.count <= DescriptorList.messageCountMax else {
      throw .tooManyDescriptors(atLeast: descriptors.count, countMax: DescriptorList.messageCountMax)
    }
    while true {
      let numbers = descriptors.numbers
      let count = cposix_send(descriptor.number, bytes.baseAddress!, bytes.count, numbers, numbers.count, 0)
      switch -count {
      case Int(EINTR): continue
      case Int(EAGAIN): return nil
      default: return try check(count, "sendmsg")
      }
    }
  }

  /// Sends all bytes, the descriptors with the first of them; waits until the deadline, or without limit when it is nil.
  ///
  /// Throws as ``sendIfReady(_:descriptors:)``, and ``SocketError/timedOut(operation:)``; how many bytes the other side got is unknown
  /// then, so that the connection is of no further use.
  public func send(
    _ bytes: UnsafeRawBufferPointer, descriptors: borrowing DescriptorList,
    deadline: ContinuousClock.Instant?
  ) throws(SocketError) {
    while true {
      if let count = try sendIfReady(bytes, descriptors: descriptors) {
        return try write(UnsafeRawBufferPointer(rebasing: bytes[count...]), deadline: deadline)
      }
      try wait(for: .writing, of: descriptor.number, until: deadline, "send")
    }
  }

  /// Receives what has come, with at most so many descriptors; nil when nothing has. The buffer is not empty.
  ///
  /// Throws ``SocketError/tooManyDescriptors(atLeast:countMax:)`` when more came (0: any at all), ``SocketError/messageTruncated`` when
  /// this process had no room for one that came, ``SocketError/closed`` when the other side was closed before it had read all, or
  /// ``SocketError/callFailed(operation:path:errno:)``. All descriptors that came are closed then, and the bytes are lost.
  public func receiveIfReady(
    into buffer: UnsafeMutableRawBufferPointer, descriptorsMax: Int
  ) throws(SocketError) -> ReceivedBytes? {
    precondition(!buffer.isEmpty, "the end of the stream would look the same")
    precondition(
      0...DescriptorList.messageCountMax ~= descriptorsMax,
      "a message has 0 to \(DescriptorList.messageCountMax) descriptors")
    var numbers = [Int32](repeating: -1, count: descriptorsMax)
    var descriptorCount = 0
    var isTruncated: Int32 = 0
    while true {
      let count = cposix_receive(
        descriptor.number, buffer.baseAddress!, buffer.count, &numbers, descriptorsMax, &descriptorCount,
        &isTruncated, 0)
      switch -count {
      case Int(EINTR): continue
      case Int(EAGAIN): return nil
      default: try check(count, "recvmsg")
      }
      guard descriptorCount <= descriptorsMax else {
        throw .tooManyDescriptors(atLeast: descriptorCount, countMax: descriptorsMax)
      }
      guard isTruncated == 0 else { throw .messageTruncated }
      numbers.removeLast(descriptorsMax - descriptorCount)
      return ReceivedBytes(byteCount: count, descriptors: DescriptorList(made: numbers))
    }
  }

  /// Receives what comes next, with at most so many descriptors: at least one byte, or none at the end of the stream. Waits until the
  /// deadline, or without limit when it is nil.
  ///
  /// Throws as ``receiveIfReady(into:descriptorsMax:)``, and ``SocketError/timedOut(operation:)``, after which nothing is lost.
  public func receive(
    into buffer: UnsafeMutableRawBufferPointer, descriptorsMax: Int, deadline: ContinuousClock.Instant?
  ) throws(SocketError) -> ReceivedBytes {
    while true {
      if let received = try receiveIfReady(into: buffer, descriptorsMax: descriptorsMax) { return received }
      try wait(for: .reading, of: descriptor.number, until: deadline, "receive")
    }
  }
}
