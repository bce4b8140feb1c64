/// The slots of the memory that one side of a bulk lane writes and the other reads
/// (DELIVERY-PROTOCOL.md, "The bulk lane"), as the writer counts them. They are used in turn.
package struct BulkSlots: Sendable {
  /// The size of a slot: the longest contents, rounded up to whole pages.
  package static let byteCount = 1_052_672
  /// How many there may be.
  package static let countMax = 1024

  package let count: Int
  private var used: UInt64 = 0
  private var freed: UInt64 = 0

  package init(count: Int) {
    precondition(1...Self.countMax ~= count, "1 to \(Self.countMax) slots")
    self.count = count
  }

  /// The slot of the next contents; nil when every slot has contents that were not read yet.
  package var next: Int? { used - freed < UInt64(count) ? Int(used % UInt64(count)) : nil }

  /// Counts the next slot as in use. To be called before the reader can hear of it, and only when
  /// there is a next slot.
  package mutating func use() {
    precondition(next != nil, "all slots are in use")
    used += 1
  }

  /// Counts so many more slots as read. Throws `streamDamaged` when that is none, or more than are
  /// in use.
  package mutating func free(_ count: UInt32) throws(BulkFault) {
    guard count > 0, UInt64(count) <= used - freed else {
      throw BulkFault(.streamDamaged, "\(count) slots were read, of \(used - freed) in use")
    }
    freed += UInt64(count)
  }
}

/// The same slots as the reader counts them. They are taken in turn and released in any order; the
/// writer is told of them in the order of their use.
package struct BulkTakenSlots: Sendable {
  package let count: Int
  private var taken: UInt64 = 0
  /// The slots that were released, up to the first that was not.
  private var released: UInt64 = 0
  private var told: UInt64 = 0
  /// The slots that were released behind one that was not.
  private var isReleased: [Bool]

  package init(count: Int) {
    precondition(1...BulkSlots.countMax ~= count, "1 to \(BulkSlots.countMax) slots")
    self.count = count
    isReleased = Array(repeating: false, count: count)
  }

  /// The number of slots that are free and of which the writer was not told.
  package var untoldCount: Int { Int(released - told) }

  /// The slot of the contents that have come. Throws `streamDamaged` when the writer cannot know
  /// that the slot is free.
  package mutating func take() throws(BulkFault) -> Int {
    guard taken - told < UInt64(count) else {
      throw BulkFault(.streamDamaged, "contents in a slot that is not free")
    }
    defer { taken += 1 }
    return Int(taken % UInt64(count))
  }

  /// Nobody reads the slot any more, which was taken.
  package mutating func release(_ slot: Int) {
    isReleased[slot] = true
    while released < taken, isReleased[Int(released % UInt64(count))] {
      isReleased[Int(released % UInt64(count))] = false
      released += 1
    }
  }

  /// The count of slots for the writer, which counts as told from now on; nil when there is none.
  package mutating func tell() -> UInt32? {
    guard untoldCount > 0 else { return nil }
    defer { told = released }
    return UInt32(untoldCount)
  }

  /// Takes a count of ``tell()`` back, of which the writer could not be told.
  package mutating func untell(_ count: UInt32) { told -= UInt64(count) }
}
