import EncryptedFile
import Locks
import SodiumPrimitives

/// Runs a plan's units on a store's threads, with progress and cancellation.
struct BulkWork {
  let plan: UnitPlan
  let control: BulkControl
  let workers: SealingWorkers
  /// The slabs that store the units; nil if the job stores nothing.
  var slabs: SlabStore?

  private struct Tally {
    var bytesDone: UInt64 = 0
    var filesDone: Int
    var piecesLeft: [Int]
    var stored: [StoredRun] = []
  }

  /// Calls `body` for every unit. If any unit fails or the job is cancelled, the runs stored so far
  /// are discarded before the error is thrown. Returns the runs of each file in order of their
  /// starts.
  func run(_ body: @escaping @Sendable (WorkerContext, Unit) throws -> [StoredRun]) throws -> FileRuns {
    let begin = Clock.monotonicNanoseconds()
    let tally = Guarded(
      Tally(filesDone: plan.piecesPerFile.count { $0 == 0 }, piecesLeft: plan.piecesPerFile))
    let report = {
      guard let progress = control.progress else { return }
      let (bytes, files) = tally.withLock { ($0.bytesDone, $0.filesDone) }
      progress(
        BulkProgress(
          bytesDone: bytes, byteCount: plan.byteCount, filesDone: files, fileCount: plan.piecesPerFile.count,
          seconds: Double(Clock.monotonicNanoseconds() - begin) / 1e9))
    }
    let poll = {
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
      report()
    }
    let units = plan.units
    let appendingTo = slabs
    slabs?.expect(plan.byteCount)
    defer { slabs?.endExpecting(plan.byteCount) }
    do {
      try poll()
      let perform = { @Sendable (context: WorkerContext, index: Int) throws in
        let stored = try body(context, units[index])
        if let slab = units[index].slab { appendingTo?.endUnit(of: slab) }
        tally.withLock { tally in
          tally.stored += stored
          for piece in units[index].pieces {
            tally.bytesDone += UInt64(piece.byteCount)
            tally.piecesLeft[piece.file] -= 1
            if tally.piecesLeft[piece.file] == 0 { tally.filesDone += 1 }
          }
        }
      }
      // Another thread would do one unit no sooner, and has to be woken.
      if units.count == 1 {
        try workers.withContext { try perform($0, 0) }
      } else {
        try workers.threads.forEach(units.count, poll: poll, perform)
      }
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
    } catch {
      for case let slab? in units.map(\.slab) { slabs?.giveBack(slab) }
      slabs?.discard(tally.withLock { $0.stored.map(\.extent) })
      throw error
    }
    report()
    let stored = tally.withLock { tally in
      defer { tally.stored = [] }
      return tally.stored
    }
    return FileRuns(stored, fileCount: plan.piecesPerFile.count)
  }
}
