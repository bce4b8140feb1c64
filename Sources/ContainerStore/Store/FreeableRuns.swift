import EncryptedFile

/// Runs that durable commits removed, and the readers of this process that may still read them.
///
/// A reader takes a ticket; runs that are removed after that stay until the ticket is returned.
/// Readers in other processes pin commit numbers in the lock file (``ContainerLock``).
struct FreeableRuns {
  private struct Removal {
    var ticket: UInt64
    var commit: UInt64
    var extents: [Extent]
  }

  /// Removals in the order of their commits.
  private var removals: [Removal] = []
  private var nextTicket: UInt64 = 0
  private var readers: [UInt64: Int] = [:]
  /// Whether the journal has a commit whose segments recovery would check. Nothing is then freed
  /// before a checkpoint, or before a durable commit states that these segments were durable.
  var isHeld = false
  /// Whether a task that frees unneeded runs is waiting to run.
  var isScheduled = false

  var isEmpty: Bool { removals.isEmpty }
  /// The oldest commit that has removed something; nil while nothing may be freed.
  var firstCommit: UInt64? { isHeld ? nil : removals.first?.commit }

  private var oldestReader: UInt64 { readers.keys.min() ?? .max }

  // MARK: Readers

  mutating func beginReading() -> UInt64 {
    readers[nextTicket, default: 0] += 1
    return nextTicket
  }

  /// Ends a reading. Returns whether this was the last reader with its ticket.
  mutating func endReading(_ ticket: UInt64) -> Bool {
    readers[ticket]! -= 1
    guard readers[ticket] == 0 else { return false }
    readers[ticket] = nil
    return true
  }

  // MARK: Removals

  mutating func append(_ extents: [Extent], removedBy commit: UInt64) {
    removals.append(Removal(ticket: nextTicket, commit: commit, extents: extents))
    nextTicket += 1
  }

  /// Commits whose removals no reader of this process needs, in order.
  func unreadCommits() -> [UInt64] {
    let oldest = oldestReader
    return removals.filter { $0.ticket < oldest }.map(\.commit)
  }

  /// Takes the runs that commits up to `commit` removed and that no reader of this process needs;
  /// nil while nothing may be freed.
  mutating func take(through commit: UInt64) -> [Extent]? {
    guard !isHeld else { return nil }
    let oldest = oldestReader
    let taken = removals.filter { $0.ticket < oldest && $0.commit <= commit }
    removals.removeAll { $0.ticket < oldest && $0.commit <= commit }
    return taken.flatMap(\.extents)
  }

  /// Drops all removals, when it is unknown whether they are durable.
  mutating func removeAll() { removals = [] }
}
