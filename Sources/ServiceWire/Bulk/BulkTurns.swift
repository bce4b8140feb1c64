/// Which stream of a bulk lane sends its next message: one message each in turn, within each one's credit.
///
/// A value without socket or cipher. Counts are those of plaintext.
package struct BulkTurns: Sendable {
  /// The message that goes next.
  package struct Turn: Equatable, Sendable {
    package var stream: UInt32
    package var byteCount: Int
    /// The stream's header goes before it.
    package var isFirst: Bool
    /// It is tagged FINAL, and the stream is forgotten.
    package var isLast: Bool
  }

  private struct Stream {
    let number: UInt32
    let byteCount: UInt64
    var sent: UInt64 = 0
    var credit: UInt64
  }

  private var streams: [Stream] = []
  /// Whose turn it is.
  private var index = 0

  package init() {}

  package var isEmpty: Bool { streams.isEmpty }

  package func contains(_ number: UInt32) -> Bool { streams.contains { $0.number == number } }

  /// A stream that is not there yet, with at least one byte. Its turn comes after that of all others.
  package mutating func begin(_ number: UInt32, byteCount: UInt64, credit: UInt64) {
    precondition(byteCount > 0, "a stream of no bytes does not exist")
    precondition(!contains(number), "stream \(number) is under way")
    streams.insert(Stream(number: number, byteCount: byteCount, credit: credit), at: index)
    index += 1
  }

  /// Of all that the stream sends; never lowers it. Does nothing for a stream that is not there.
  package mutating func raiseCredit(_ number: UInt32, to total: UInt64) {
    guard let index = streams.firstIndex(where: { $0.number == number }) else { return }
    streams[index].credit = max(streams[index].credit, total)
  }

  /// Forgets a stream. Does nothing for one that is not there.
  package mutating func stop(_ number: UInt32) {
    guard let index = streams.firstIndex(where: { $0.number == number }) else { return }
    remove(at: index)
  }

  /// The next message, which counts as sent from now on; nil when no stream has the credit for its next one.
  package mutating func next() -> Turn? {
    for _ in streams.indices {
      if index >= streams.count { index = 0 }
      let stream = streams[index]
      let count = min(UInt64(BulkFrame.messageByteCountMax), stream.byteCount - stream.sent)
      guard stream.credit >= stream.sent, stream.credit - stream.sent >= count else {
        index += 1
        continue
      }
      let isLast = stream.sent + count == stream.byteCount
      if isLast {
        remove(at: index)
      } else {
        streams[index].sent += count
        index += 1
      }
      return Turn(
        stream: stream.number, byteCount: Int(count), isFirst: stream.sent == 0, isLast: isLast)
    }
    return nil
  }

  private mutating func remove(at position: Int) {
    streams.remove(at: position)
    if position < index { index -= 1 }
  }
}
