import EncryptedFile

/// A unit that a worker thread writes to a slab, while the next one is sealed. Whoever has it waits for its end.
struct WritingUnit {
  typealias Place = (slab: UInt32, offset: UInt64)

  var unit: ArrivalUnit { outcome.unit }
  private let ticket: WorkerThreads.Ticket
  private let workers: WorkerThreads
  private let outcome: Outcome

  private final class Outcome: @unchecked Sendable {
    // Invariant: the place belongs to the worker until its work has ended, and then to whoever has waited for that.
    let unit: ArrivalUnit
    var place: Result<Place, any Error>?

    init(_ unit: ArrivalUnit) { self.unit = unit }
  }

  /// Begins to write it.
  init(_ unit: ArrivalUnit, _ container: Container) {
    let outcome = Outcome(unit)
    (self.outcome, workers) = (outcome, container.workers)
    ticket = container.workers.begin { [slabs = container.slabs] _ in
      outcome.place = Result { try slabs.append(outcome.unit.sealed) }
    }
  }

  /// Where it was written, after waiting for that.
  func place() throws -> Place {
    workers.wait(for: ticket)
    return try outcome.place!.get()
  }
}
