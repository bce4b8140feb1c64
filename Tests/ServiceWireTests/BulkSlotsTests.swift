import Testing

@testable import ServiceWire

struct BulkSlotsTests {
  @Test func areUsedInTurnAsTheyAreFreed() throws {
    var slots = BulkSlots(count: 3)
    #expect((0..<3).map { _ in slots.use() } == [0, 1, 2])
    #expect(slots.isFull)
    slots.announce()
    try slots.free(1)
    #expect(!slots.isFull)
    #expect(slots.use() == 0 && slots.isFull)
    slots.announce()
    try slots.free(1)
    #expect(slots.isFull)
    try slots.free(4)
    #expect((0..<3).map { _ in slots.use() } == [1, 2, 0])
  }

  @Test func oneThatWasNotWrittenComesAgain() throws {
    var slots = BulkSlots(count: 2)
    #expect(slots.use() == 0)
    #expect(slots.use() == 1)
    slots.unuse()
    #expect(slots.use() == 1 && slots.isFull)
  }

  @Test func refusesTotalsThatFallOrRunAhead() throws {
    var slots = BulkSlots(count: 2)
    _ = slots.use()
    // Of which nobody heard yet.
    #expect(throws: BulkFault.self) { try slots.free(1) }
    slots.announce()
    for total: UInt64 in [2, .max] {
      #expect(throws: BulkFault.self) { try slots.free(total) }
    }
    try slots.free(1)
    #expect(throws: BulkFault.self) { try slots.free(0) }
    #expect(slots.use() == 1)
  }

  /// A slot has room for the longest message.
  @Test func haveRoom() {
    #expect(BulkSlots.byteCount >= BulkFrame.messageByteCountMax + BulkFrame.overheadByteCount)
  }
}
