import ServiceWire
import UnixSockets

/// The memory that contents of the peer come in.
struct TakenBulkMemory {
  let reader: SharedMemory.Reader
  var slots: BulkTakenSlots
  /// The sending thread has to tell the peer of slots.
  var isOwed = false
}

/// The memory that contents are sent in.
struct SentBulkMemory {
  /// The slots that the peer takes at most.
  var slotCountMax = 0
  /// The memory is made before the next frame.
  var isWanted = false
  var slots: BulkSlots?
  /// Nil until there are slots.
  var memory: GivenBulkMemory?
}

/// Memory that counts in the budget as long as anybody holds it.
final class GivenBulkMemory: Sendable {
  let memory: SharedMemory
  private let slotCount: Int
  private let budget: BulkSlotBudget

  init(_ memory: SharedMemory, slotCount: Int, _ budget: BulkSlotBudget) {
    (self.memory, self.slotCount, self.budget) = (memory, slotCount, budget)
  }

  deinit { budget.giveBack(slotCount) }
}
