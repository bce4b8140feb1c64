import Testing

@testable import ServiceWire

struct BulkTurnsTests {
  /// The streams of the next frames, until there is none or so many.
  static func order(_ turns: inout BulkTurns, _ count: Int = .max) -> [UInt32] {
    var order: [UInt32] = []
    while order.count < count, let stream = turns.next() { order.append(stream) }
    return order
  }

  @Test func givesEachStreamOneFrameInTurn() {
    var turns = BulkTurns()
    #expect(turns.next() == nil && turns.isEmpty)
    for (stream, credit) in [(UInt32(1), UInt64(4)), (2, 1), (3, 3)] { turns.begin(stream, credit: credit) }
    #expect(Self.order(&turns) == [1, 2, 3, 1, 3, 1, 3, 1])
    #expect(!turns.isEmpty)
  }

  @Test func letsAStreamThatBeginsLaterWaitForTheOthersOnce() {
    var turns = BulkTurns()
    turns.begin(1, credit: 3)
    turns.begin(2, credit: 3)
    #expect(turns.next() == 1)
    turns.begin(3, credit: 1)
    #expect(Self.order(&turns) == [2, 1, 3, 2, 1, 2])
  }

  @Test func passesOverAStreamWithoutCredit() {
    var turns = BulkTurns()
    turns.begin(1, credit: 1)
    turns.begin(2, credit: 3)
    turns.begin(3, credit: 0)
    #expect(Self.order(&turns) == [1, 2, 2, 2])
    turns.raiseCredit(1, to: 2)
    turns.raiseCredit(1, to: 0)
    turns.raiseCredit(7, to: .max)
    #expect(Self.order(&turns) == [1])
    turns.raiseCredit(3, to: 1)
    turns.raiseCredit(1, to: .max)
    #expect(Self.order(&turns, 4).sorted() == [1, 1, 1, 3])
  }

  @Test func keepsTheOrderOfTheOthersWhenOneIsStopped() {
    var turns = BulkTurns()
    for stream: UInt32 in 1...4 { turns.begin(stream, credit: 2) }
    #expect(Self.order(&turns, 2) == [1, 2])
    turns.stop(1)
    turns.stop(3)
    turns.stop(8)
    #expect(!turns.contains(3))
    #expect(Self.order(&turns) == [4, 2, 4])
    for stream: UInt32 in 1...4 { turns.stop(stream) }
    #expect(turns.isEmpty && turns.next() == nil)
  }

  /// The stream whose frame was the last one is stopped after its turn.
  @Test func goesOnWithTheNextStreamWhenOneEnds() {
    for ending: UInt32 in 1...3 {
      var turns = BulkTurns()
      for stream: UInt32 in 1...3 { turns.begin(stream, credit: .max) }
      #expect(Self.order(&turns, Int(ending)).last == ending)
      turns.stop(ending)
      let after = (1...2).map { (ending - 1 + $0) % 3 + 1 }
      #expect(Self.order(&turns, 4) == after + after)
    }
  }
}
