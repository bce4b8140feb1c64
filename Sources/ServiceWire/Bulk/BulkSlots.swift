/// The slots of the memory that one side of a bulk lane writes and the other reads (SERVICE-PROTOCOL.md, "Shared memory"), as the writer
/// counts them: they are used in turn.
package struct BulkSlots: Sendable {
  /// Of one slot: the longest message, and what makes it a multiple of 64.
  package static let byteCount = 65_600
  /// How many there may be.
  package static let countMax = 1024

  package let count: Int
  private var used: UInt64 = 0
  /// Of these, whose frames were written, or are about to be.
  private var announced: UInt64 = 0
  private var freed: UInt64 = 0

  package init(count: Int) {
    precondition(1...Self.countMax ~= count, "1 to \(Self.countMax) slots")
    self.count = count
  }

  /// Every slot has a message that was not read yet.
  package var isFull: Bool { used - freed == UInt64(count) }

  /// The slot that comes next, which is in use from now on. There is one.
  package mutating func use() -> Int {
    precondition(!isFull, "all slots are in use")
    defer { used += 1 }
    return Int(used % UInt64(count))
  }

  /// Nothing was written to the slot that was given last, and it was not announced.
  package mutating func unuse() {
    precondition(used > announced, "no slot is to be given back")
    used -= 1
  }

  /// The reader is going to hear of all that are in use.
  package mutating func announce() { announced = used }

  /// The reader is done with so many, in all. Throws `streamDamaged` when that falls, or is more than it heard of.
  package mutating func free(_ total: UInt64) throws(BulkFault) {
    guard freed...announced ~= total else {
      throw BulkFault(.streamDamaged, "\(total) slots freed, after \(freed), of \(announced)")
    }
    freed = total
  }
}
