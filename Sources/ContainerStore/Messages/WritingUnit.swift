import EncryptedFile

/// A unit that a worker thread writes to a slab while the next one is sealed. The owner must wait
/// for the write.
struct WritingUnit {
  var unit: ArrivalUnit { outcome.unit }
  private let ticket: WorkerThreads.Ticket
  private let workers: WorkerThreads
  private let outcome: Outcome

  private final class Outcome: @unchecked Sendable {
    // Invariant: the location belongs to the worker until the write has ended, and then to the
    // thread that has waited for it.
    let unit: ArrivalUnit
    var location: Result<SlabStore.Location, any Error>?

    init(_ unit: ArrivalUnit) { self.unit = unit }
  }

  /// Starts the write.
  init(_ unit: ArrivalUnit, in store: Store) {
    let outcome = Outcome(unit)
    (self.outcome, workers) = (outcome, store.workers.threads)
    ticket = store.workers.threads.begin { [slabs = store.slabs] _ in
      outcome.location = Result { try slabs.append(outcome.unit.sealed) }
    }
  }

  /// Waits for the write and returns the unit's location.
  func location() throws -> SlabStore.Location {
    workers.wait(for: ticket)
    return try outcome.location!.get()
  }
}
