import Testing

@testable import ServiceWire

struct BulkTurnsTests {
  static let message = UInt64(BulkFrame.messageByteCountMax)

  /// The streams whose turn it is, until there is none.
  static func order(_ turns: inout BulkTurns) -> [UInt32] {
    var order: [UInt32] = []
    while let turn = turns.next() { order.append(turn.stream) }
    return order
  }

  @Test func givesEachStreamOneMessageInTurn() {
    var turns = BulkTurns()
    for (stream, count) in [(UInt32(1), 4 * Self.message), (2, 1), (3, 2 * Self.message + 1)] {
      turns.begin(stream, byteCount: count, credit: .max)
    }
    #expect(Self.order(&turns) == [1, 2, 3, 1, 3, 1, 3, 1])
    #expect(turns.isEmpty)
  }

  @Test func letsAStreamThatBeginsLaterWaitForTheOthersOnce() {
    var turns = BulkTurns()
    turns.begin(1, byteCount: 3 * Self.message, credit: .max)
    turns.begin(2, byteCount: 3 * Self.message, credit: .max)
    #expect(turns.next()?.stream == 1)
    turns.begin(3, byteCount: 1, credit: .max)
    #expect(Self.order(&turns) == [2, 1, 3, 2, 1, 2])
  }

  @Test func saysWhatTheFirstAndTheLastMessageAre() {
    var turns = BulkTurns()
    turns.begin(9, byteCount: Self.message + 1, credit: .max)
    #expect(turns.next() == .init(stream: 9, byteCount: Int(Self.message), isFirst: true, isLast: false))
    #expect(turns.next() == .init(stream: 9, byteCount: 1, isFirst: false, isLast: true))
    #expect(turns.next() == nil)
    turns.begin(9, byteCount: Self.message, credit: .max)
    #expect(turns.next() == .init(stream: 9, byteCount: Int(Self.message), isFirst: true, isLast: true))
  }

  @Test func passesOverAStreamWithoutCredit() {
    var turns = BulkTurns()
    turns.begin(1, byteCount: 3 * Self.message, credit: 2 * Self.message - 1)
    turns.begin(2, byteCount: 3 * Self.message, credit: .max)
    #expect(Self.order(&turns) == [1, 2, 2, 2])
    turns.raiseCredit(1, to: 2 * Self.message)
    turns.raiseCredit(1, to: 5)
    turns.raiseCredit(7, to: .max)
    #expect(Self.order(&turns) == [1])
    // The last message may be shorter than the credit that is left, never longer.
    turns.raiseCredit(1, to: 3 * Self.message - 1)
    #expect(turns.next() == nil)
    turns.raiseCredit(1, to: 3 * Self.message)
    #expect(Self.order(&turns) == [1])
    #expect(turns.isEmpty)
  }

  @Test func keepsTheOrderOfTheOthersWhenOneIsStopped() {
    var turns = BulkTurns()
    for stream: UInt32 in 1...4 { turns.begin(stream, byteCount: 2 * Self.message, credit: .max) }
    #expect([turns.next()?.stream, turns.next()?.stream] == [1, 2])
    turns.stop(1)
    turns.stop(3)
    turns.stop(8)
    #expect(!turns.contains(3))
    #expect(Self.order(&turns) == [4, 2, 4])
    #expect(turns.isEmpty)
  }
}
