/// The frames that a bulk lane may receive next.
///
/// A value without socket or cipher. Credit counts the frames of a stream since its beginning.
package struct BulkReception: Sendable {
  /// The number of streams that were stopped and of which frames may still come. When more are
  /// stopped, the oldest is forgotten, and a frame of it is damage.
  package static let stoppedCountMax = 1024

  /// A frame whose header was accepted.
  package struct Frame: Equatable, Sendable {
    /// The stream's header stands in front of the sealed block.
    package var isFirst: Bool
    /// The stream was stopped.
    package var isSkipped: Bool
  }

  private struct Stream {
    var received: UInt64 = 0
    var credit: UInt64
    var isStopped = false
  }

  private var streams: [UInt32: Stream] = [:]
  /// Oldest first.
  private var stopped: [UInt32] = []

  package init() {}

  /// No stream is under way, except those that are skipped.
  package var isIdle: Bool { streams.count == stopped.count }

  /// Announces a stream under a number that is not in use.
  package mutating func expect(_ number: UInt32, credit: UInt64) {
    precondition(number != BulkFrame.laneNumber, "the lane's own number is no stream's")
    precondition(streams[number] == nil, "stream \(number) is under way")
    streams[number] = Stream(credit: credit)
  }

  /// Raises the number of frames that the stream may send in all; never lowers it. Does nothing for
  /// a stream that is not under way or was stopped.
  package mutating func raiseCredit(_ number: UInt32, to total: UInt64) {
    guard let stream = streams[number], !stream.isStopped else { return }
    streams[number]?.credit = max(stream.credit, total)
  }

  /// Lets what still comes of the stream be skipped, within its credit. Does nothing for a stream
  /// that is not under way.
  package mutating func stop(_ number: UInt32) {
    guard let stream = streams[number], !stream.isStopped else { return }
    streams[number]?.isStopped = true
    stopped.append(number)
    if stopped.count > Self.stoppedCountMax { streams[stopped.removeFirst()] = nil }
  }

  /// Forgets a stream whose last frame has come; another frame of it is damage.
  package mutating func end(_ number: UInt32) {
    guard let stream = streams.removeValue(forKey: number), stream.isStopped else { return }
    stopped.removeAll { $0 == number }
  }

  /// Accepts the frame of a stream by its header, and counts it.
  ///
  /// Throws `streamDamaged` for a stream that is not under way and for an impossible length, and
  /// `limitExceeded` for a frame beyond the credit.
  package mutating func begin(
    _ number: UInt32, block: UInt32, contents: UInt32, isInSlot: Bool
  ) throws(BulkFault) -> Frame {
    guard var stream = streams[number] else {
      throw BulkFault(.streamDamaged, "a frame of stream \(number), which is not under way")
    }
    let isFirst = stream.received == 0
    let extra = BulkFrame.overheadByteCount + (isFirst ? BulkFrame.streamHeaderByteCount : 0)
    guard BulkFrame.blockByteCountMin...BulkFrame.blockByteCountMax ~= Int(block) - extra else {
      throw BulkFault(.streamDamaged, "a block of \(block) bytes on stream \(number)")
    }
    guard contents <= BulkFrame.contentsByteCountMax, contents > 0 || !isInSlot else {
      throw BulkFault(.streamDamaged, "contents of \(contents) bytes on stream \(number)")
    }
    guard stream.received < stream.credit else {
      throw BulkFault(.limitExceeded, "a frame beyond the credit of stream \(number), \(stream.credit)")
    }
    stream.received += 1
    streams[number] = stream
    return Frame(isFirst: isFirst, isSkipped: stream.isStopped)
  }
}
