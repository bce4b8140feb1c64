/// The order in which the streams of a bulk lane send: one frame each in turn, within each one's
/// credit.
///
/// A value without socket or cipher. Credit counts the frames of a stream since its beginning.
package struct BulkTurns: Sendable {
  private struct Stream {
    let number: UInt32
    var sent: UInt64 = 0
    var credit: UInt64
  }

  private var streams: [Stream] = []
  /// The position of the stream whose turn it is.
  private var index = 0

  package init() {}

  package var isEmpty: Bool { streams.isEmpty }

  package func contains(_ number: UInt32) -> Bool { streams.contains { $0.number == number } }

  /// Adds a stream that is not there yet. Its turn comes after that of all others.
  package mutating func begin(_ number: UInt32, credit: UInt64) {
    precondition(!contains(number), "stream \(number) is under way")
    streams.insert(Stream(number: number, credit: credit), at: index)
    index += 1
  }

  /// Raises the number of frames that the stream sends in all; never lowers it. Does nothing for a
  /// stream that is not there.
  package mutating func raiseCredit(_ number: UInt32, to total: UInt64) {
    guard let index = streams.firstIndex(where: { $0.number == number }) else { return }
    streams[index].credit = max(streams[index].credit, total)
  }

  /// Forgets a stream, at its end too. Does nothing for one that is not there.
  package mutating func stop(_ number: UInt32) {
    guard let position = streams.firstIndex(where: { $0.number == number }) else { return }
    streams.remove(at: position)
    if position < index { index -= 1 }
  }

  /// The stream of the next frame, which counts as sent from now on; nil when no stream has credit.
  package mutating func next() -> UInt32? {
    for _ in streams.indices {
      if index >= streams.count { index = 0 }
      let position = index
      index += 1
      guard streams[position].sent < streams[position].credit else { continue }
      streams[position].sent += 1
      return streams[position].number
    }
    return nil
  }
}
