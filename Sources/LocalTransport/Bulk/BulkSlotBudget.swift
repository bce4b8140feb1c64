import Locks

/// The slots of shared memory that the lanes of one app give to their peers together. A lane that gets none
/// sends over its socket, in shorter frames: so an app that sends to many others at once takes little more
/// memory than one that sends to a few.
package final class BulkSlotBudget: Sendable {
  /// Slots of one app's lanes together, unless it is told otherwise: 8 MiB.
  package static let slotCountMax = 8
  /// Fewer slots are not worth having: one is filled while another is read.
  private static let slotCountMin = 2

  private let left: Guarded<Int>

  package init(slotCount: Int = BulkSlotBudget.slotCountMax) { left = Guarded(slotCount) }

  /// At most `count` slots; none where too few are left.
  func take(upTo count: Int) -> Int {
    left.withLock { left in
      let taken = min(count, left)
      guard taken >= min(count, Self.slotCountMin) else { return 0 }
      left -= taken
      return taken
    }
  }

  func giveBack(_ count: Int) { left.withLock { $0 += count } }
}
