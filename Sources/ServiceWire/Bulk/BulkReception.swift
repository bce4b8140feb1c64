/// Which frames a bulk lane may receive next: each has one length only, because streams announce how many bytes they have.
///
/// A value without socket or cipher. Counts are those of plaintext.
package struct BulkReception: Sendable {
  /// Streams that were stopped before their end, and of which frames may still come. When more are stopped, the oldest is forgotten,
  /// and a frame of it is damage.
  package static let stoppedCountMax = 1024

  /// What the body of a frame is.
  package enum Body: Equatable, Sendable {
    /// The stream's header.
    case header
    /// The stream's next message: tagged FINAL when it is the last one, else MESSAGE.
    case message(isLast: Bool)
    /// Of a stream that was stopped.
    case skipped
  }

  private struct Stream {
    let byteCount: UInt64
    var received: UInt64 = 0
    var credit: UInt64
    var hasHeader = false
    var isStopped = false
  }

  private var streams: [UInt32: Stream] = [:]
  /// Oldest first.
  private var stopped: [UInt32] = []

  package init() {}

  /// No stream is awaited, but for what is skipped.
  package var isIdle: Bool { streams.count == stopped.count }

  /// A stream that is not there yet, with at least one byte.
  package mutating func expect(_ number: UInt32, byteCount: UInt64, credit: UInt64) {
    precondition(byteCount > 0, "a stream of no bytes does not exist")
    precondition(streams[number] == nil, "stream \(number) is under way")
    streams[number] = Stream(byteCount: byteCount, credit: credit)
  }

  /// Of all that the stream may send; never lowers it. Does nothing for a stream that is not there or was stopped.
  package mutating func raiseCredit(_ number: UInt32, to total: UInt64) {
    guard let stream = streams[number], !stream.isStopped else { return }
    streams[number]?.credit = max(stream.credit, total)
  }

  /// What still comes of it is skipped. Does nothing for a stream that is not there.
  package mutating func stop(_ number: UInt32) {
    guard let stream = streams[number], !stream.isStopped else { return }
    streams[number]?.isStopped = true
    stopped.append(number)
    if stopped.count > Self.stoppedCountMax { streams[stopped.removeFirst()] = nil }
  }

  /// The frame that begins, from its first eight bytes: what its body is. It counts as received from now on.
  ///
  /// Throws `streamDamaged` for a stream that was not announced, or has ended, and for a length that is not the one that follows, a header in a slot, and `limitExceeded`
  /// for a message beyond the credit.
  package mutating func begin(
    stream number: UInt32, length: UInt32, isInSlot: Bool = false
  ) throws(BulkFault) -> Body {
    guard var stream = streams[number] else {
      throw BulkFault(.streamDamaged, "a frame of stream \(number), which is not under way")
    }
    guard stream.hasHeader else {
      guard length == BulkFrame.streamHeaderByteCount, !isInSlot else {
        throw Self.wrongLength(number, length)
      }
      stream.hasHeader = true
      streams[number] = stream
      return stream.isStopped ? .skipped : .header
    }
    let count = min(UInt64(BulkFrame.messageByteCountMax), stream.byteCount - stream.received)
    guard UInt64(length) == count + UInt64(BulkFrame.overheadByteCount) else {
      throw Self.wrongLength(number, length)
    }
    guard stream.credit >= stream.received, stream.credit - stream.received >= count else {
      throw BulkFault(.limitExceeded, "a frame beyond the credit of stream \(number), \(stream.credit) bytes")
    }
    stream.received += count
    let isLast = stream.received == stream.byteCount
    streams[number] = isLast ? nil : stream
    if stream.isStopped {
      if isLast { stopped.removeAll { $0 == number } }
      return .skipped
    }
    return .message(isLast: isLast)
  }

  private static func wrongLength(_ number: UInt32, _ length: UInt32) -> BulkFault {
    BulkFault(.streamDamaged, "a frame of \(length) bytes, which cannot come next on stream \(number)")
  }
}
