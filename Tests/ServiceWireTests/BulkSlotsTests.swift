import TestSupport
import Testing

@testable import ServiceWire

struct BulkSlotsTests {
  @Test func areUsedInTurnAsTheyAreFreed() throws {
    var slots = BulkSlots(count: 3)
    for slot in 0..<3 {
      #expect(slots.next == slot)
      slots.use()
    }
    #expect(slots.next == nil)
    try slots.free(1)
    #expect(slots.next == 0)
    slots.use()
    #expect(slots.next == nil)
    try slots.free(3)
    for slot in [1, 2, 0] {
      #expect(slots.next == slot)
      slots.use()
    }
    #expect(slots.next == nil)
  }

  @Test func refuseToBeFreedBeforeTheirUse() throws {
    var slots = BulkSlots(count: 2)
    for count: UInt32 in [0, 1, .max] {
      #expect(throws: BulkFault.self) { try slots.free(count) }
    }
    slots.use()
    for count: UInt32 in [0, 2, .max] {
      #expect(throws: BulkFault.self) { try slots.free(count) }
    }
    try slots.free(1)
    #expect(throws: BulkFault.self) { try slots.free(1) }
    #expect(slots.next == 1)
  }

  /// A slot has room for the longest contents.
  @Test func haveRoom() { #expect(BulkSlots.byteCount >= BulkFrame.contentsByteCountMax) }
}

struct BulkTakenSlotsTests {
  @Test func areToldInTheOrderOfTheirUse() throws {
    var slots = BulkTakenSlots(count: 3)
    for slot in 0..<3 { #expect(try slots.take() == slot) }
    #expect(slots.tell() == nil)
    slots.release(2)
    slots.release(1)
    #expect(slots.untoldCount == 0 && slots.tell() == nil)
    slots.release(0)
    #expect(slots.untoldCount == 3)
    #expect(slots.tell() == 3)
    #expect(slots.tell() == nil)
    #expect(try slots.take() == 0)
  }

  @Test func areTakenOnlyWhenTheWriterKnowsThatTheyAreFree() throws {
    var slots = BulkTakenSlots(count: 2)
    for _ in 0..<2 { _ = try slots.take() }
    #expect(throws: BulkFault.self) { try slots.take() }
    slots.release(0)
    #expect(throws: BulkFault.self) { try slots.take() }
    let told = slots.tell()
    let count = try #require(told)
    // It could not be told.
    slots.untell(count)
    #expect(throws: BulkFault.self) { try slots.take() }
    #expect(slots.tell() == 1)
    #expect(try slots.take() == 0)
    #expect(throws: BulkFault.self) { try slots.take() }
  }

  /// Both sides' counts against each other, with releases in any order: no slot is used that is
  /// read, and none is lost.
  @Test(arguments: [1, 2, 5]) func agreeWithTheWriters(count: Int) throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = SplitMix64(seed: seed)
    var writer = BulkSlots(count: count)
    var reader = BulkTakenSlots(count: count)
    var held: [Int] = []
    for _ in 0..<10_000 {
      switch Int.random(in: 0..<3, using: &random) {
      case 0:
        guard let next = writer.next else { continue }
        #expect(!held.contains(next), "seed \(seed)")
        writer.use()
        #expect(try reader.take() == next, "seed \(seed)")
        held.append(next)
      case 1:
        guard !held.isEmpty else { continue }
        reader.release(held.remove(at: Int.random(in: 0..<held.count, using: &random)))
      default: if let count = reader.tell() { try writer.free(count) }
      }
    }
    for slot in held { reader.release(slot) }
    if let count = reader.tell() { try writer.free(count) }
    for _ in 0..<count { writer.use() }
    #expect(writer.next == nil, "seed \(seed)")
  }
}
