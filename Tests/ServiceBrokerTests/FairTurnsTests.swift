import Testing

@testable import ServiceBroker

struct FairTurnsTests {
  private typealias Turns = FairTurns<String, Int>

  /// Takes a turn that takes so long, and returns its work.
  private func take(_ turns: inout Turns, _ time: UInt64 = 1, rest: Int? = nil) -> Int? {
    guard let (owner, work) = turns.next() else { return nil }
    turns.took(time, of: owner, rest: rest)
    return work
  }

  @Test func ownersTakeTurnsInOrder() {
    var turns = Turns(turnTime: 10)
    for i in 0..<5 { turns.add(i, of: "a") }
    turns.add(10, of: "b")
    turns.add(20, of: "c")
    turns.add(11, of: "b")
    #expect((0..<8).map { _ in take(&turns) } == [0, 10, 20, 1, 11, 2, 3, 4])
    #expect(take(&turns) == nil && turns.isEmpty)
  }

  @Test func whatIsLeftComesBeforeTheOwnersOther() {
    var turns = Turns(turnTime: 10)
    turns.add(0, of: "a")
    turns.add(1, of: "a")
    turns.add(10, of: "b")
    #expect(take(&turns, rest: 100) == 0)
    #expect((0..<3).map { _ in take(&turns) } == [10, 100, 1])
    turns.add(7, of: "a")
    #expect(take(&turns, rest: 8) == 7)
    #expect(take(&turns) == 8 && turns.isEmpty)
  }

  @Test func whoTakesLongMissesTurns() {
    var turns = Turns(turnTime: 10)
    for i in 0..<4 { turns.add(i, of: "a") }
    for i in 10..<20 { turns.add(i, of: "b") }
    // Two turns beyond its own.
    #expect(take(&turns, 30) == 0)
    #expect((0..<4).map { _ in take(&turns) } == [10, 11, 12, 1])
    #expect(take(&turns) == 13)
  }

  @Test func whoIsAloneIsNotCharged() {
    var turns = Turns(turnTime: 10)
    turns.add(0, of: "a")
    #expect(take(&turns, 1_000_000) == 0)
    turns.add(1, of: "a")
    turns.add(10, of: "b")
    #expect(take(&turns) == 1)
    // And nobody owes for ever.
    turns.add(2, of: "a")
    turns.add(11, of: "b")
    #expect(take(&turns) == 10)
    #expect(take(&turns, .max) == 2)
    for i in 0..<1000 { turns.add(i, of: "b") }
    turns.add(-1, of: "a")
    var count = 0
    while take(&turns) != -1 { count += 1 }
    #expect(count == 101)
  }
}
