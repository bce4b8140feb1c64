import EncryptedFile
import SodiumPrimitives

/// Checkpoints of a store: changes in journals become a table, and files that only older states
/// need are removed.
///
/// 1. Under the commit log's lock, the changes so far are frozen, and a new journal under the key
///    of a pending generation receives later ones. One update of the superblock names both.
/// 2. In the background, the frozen changes are merged with the newest tables into one table.
/// 3. Under the lock again, one update of the superblock completes the generation.
///
/// A crash before the end of step 1 leaves the old generation and its journals. Between steps 1 and
/// 3 the pending generation names both journals: after a crash, the next opening reads them and
/// continues with step 2. After step 3 the files of the previous generation are garbage.
struct Checkpoints {
  let store: Store

  private static let journalCountMax = 8
  /// The bound at closing, so that the next opening has little to replay.
  private static let overlayByteCountMaxWhenClosed: UInt64 = 2 << 20
  /// The maximum size of a catalog that is rewritten to save space.
  private static let rewrittenByteCountMax: UInt64 = 8 << 20

  func isDue(_ log: borrowing CommitLog, closing: Bool = false) -> Bool {
    let live = store.catalogState.withLock { $0.liveByteCount }
    // The bound is proportional to the stored bytes: changes cost memory, and journals cost space.
    let bounds = store.options.checkpointByteCounts
    var byteCountMax = min(max(live / 16, bounds.lowerBound), bounds.upperBound)
    if closing { byteCountMax = min(byteCountMax, Self.overlayByteCountMaxWhenClosed) }
    return log.journalByteCount > byteCountMax || log.journalCount >= Self.journalCountMax
  }

  // MARK: In the background

  /// Directs later changes to a new journal, and writes the table in the background. The changes so
  /// far are frozen already, and durable in the journal.
  func begin(_ log: inout CommitLog) throws {
    let generation = Generation(
      number: log.newestGeneration + 1, epoch: store.epoch, state: .pending, secret: Random.bytes(32),
      commit: 0,
      tables: [])
    try store.keyring.add(generation)
    if let journal = log.journal {
      try journal.synchronizeBoth()
      log.predecessor = JournalHeader.Predecessor(
        id: journal.id, generation: journal.generation, end: journal.end)
    }
    log.journal = nil
    try store.startJournal(&log, pending: generation)
    log.newestGeneration = generation.number
    log.frozenCommit = log.commit
    log.chainByteCount = 0
    // The new journal has no commit whose segments recovery would check.
    log.lastCheckedRecord = nil
    store.catalogState.withLock { $0.freeable.isHeld = false }
    writeFrozenInBackground(&log)
  }

  /// Continues a checkpoint that a crash interrupted, or begins one that is due. Called after
  /// opening.
  func continueInterrupted(_ log: inout CommitLog) throws {
    if log.frozenCommit != nil {
      writeFrozenInBackground(&log)
    } else if log.journal != nil, isDue(log) {
      store.catalogState.withLock { $0.freeze() }
      try begin(&log)
    }
  }

  /// Tries again to write a table for which there was no room, when the journal has doubled in
  /// length since. Called after a durable commit.
  func retry(_ log: inout CommitLog) {
    guard log.frozenCommit != nil, !log.checkpointIsRunning, isDue(log),
      let journal = log.journal, journal.byteCount > 2 * (log.checkpointFailure?.journalByteCount ?? 0),
      !store.isClosed
    else { return }
    writeFrozenInBackground(&log)
  }

  private func writeFrozenInBackground(_ log: inout CommitLog) {
    log.checkpointIsRunning = true
    store.inBackground(store.checkpointing, store.backgroundWork) { Checkpoints(store: $0).writeFrozen() }
  }

  private func writeFrozen() {
    let snapshot = store.catalogState.withLock { $0.snapshot }
    guard let frozen = snapshot.frozen else { return }
    let (update, mergesAll) = store.commitLog.withLock { ($0.superblock.nextUpdate, $0.mergesAllTables) }
    func write() -> Result<[TableFile], any Error> {
      Result { try writeTable(frozen, over: snapshot.tables, namedIn: update, mergingAll: mergesAll) }
    }
    var written = write()
    if mergesAll, case .failure(let failure as IOFailure) = written, noSpace.contains(failure.errno),
      store.commitLog.withLock({ log in log.reserve.isHeld && (try? log.reserve.giveUp()) != nil })
    {
      written = write()
    }
    store.commitLog.withLock { log in
      log.checkpointIsRunning = false
      // Without room for the table the journals keep growing, and a later commit tries again. A
      // failure below makes the container read-only.
      let tables: [TableFile]
      switch written {
      case .success(let new):
        tables = new
        log.checkpointFailure = nil
      case .failure(let error):
        log.checkpointFailure = (log.journal?.byteCount ?? 0, error)
        if !log.reserve.isHeld { store.takeReserve(&log) }
        return
      }
      guard let commit = log.frozenCommit, (try? store.requireNoFailure()) != nil else { return }
      try? store.failing(&log) { log in
        try log.superblock.update { body in
          body.generations[0].state = .complete
          body.generations[0].commit = commit
          body.generations[0].tables = tables.map(\.table)
          body.generations = [body.generations[0]]
        }
        log.completeGeneration()
        store.catalogState.withLock { $0.completeCheckpoint(tables) }
        store.removeUnreferenced(log)
        store.takeReserve(&log)  // the catalog has grown
      }
    }
  }

  // MARK: On request

  /// Merges journals and tables into one table, so that nothing of what was removed is left in them,
  /// and returns when that is done. Does nothing when there is one table at most and nothing was
  /// removed since.
  func mergeAll() throws {
    // Tables that are being written were begun without this request, and changes follow those that a
    // checkpoint has frozen.
    store.checkpointing.sync {}
    defer { store.commitLog.withLock { $0.mergesAllTables = false } }
    for _ in 1...2 where try beginMerging() {
      store.checkpointing.sync {}
      try store.requireNoFailure()
      try store.commitLog.withLock { log in
        guard let failure = log.checkpointFailure else { return }
        throw (failure.cause as? IOFailure).map(ContainerError.from) ?? failure.cause
      }
    }
  }

  private func beginMerging() throws -> Bool {
    try store.commitLog.withLock { log in
      if log.isClosed || store.isClosed { throw store.closed }
      try store.requireNoFailure()
      try store.failing(&log) { try store.commitPending(&$0, durably: true) }
      let snapshot = store.catalogState.withLock { $0.snapshot }
      guard snapshot.tables.count > 1 || snapshot.frozen != nil || snapshot.overlay.givesBack else {
        return false
      }
      log.mergesAllTables = true
      try store.failing(&log) { log in
        if log.frozenCommit == nil {
          store.catalogState.withLock { $0.freeze() }
          try begin(&log)
        } else if !log.checkpointIsRunning {
          writeFrozenInBackground(&log)
        }
      }
      return true
    }
  }

  // MARK: At closing

  /// Writes a large overlay to a table; then everything is in tables and no journal is needed.
  /// Rewrites a catalog that takes far more space than its two copies. Returns false when neither
  /// was needed, or there was no room.
  func writeFinal(_ log: inout CommitLog) throws -> Bool {
    // On a full disk a table gives back what the journals took of the reserve.
    let isFull = store.catalogState.withLock { $0.diskIsFull }
    let isBloated = try isFull || catalogIsBloated()
    guard isBloated || isDue(log, closing: true) else { return false }
    let write = { (log: inout CommitLog) in try writeEverything(&log, mergingAll: isBloated) }
    // Without room for a table the journals stay.
    guard (try? isFull ? store.usingReserve(&log, write) : write(&log)) != nil else { return false }
    store.removeUnreferenced(log)
    return true
  }

  /// Writes all readable records to one table, in two copies, and names no journal.
  func rewriteCatalog(_ log: inout CommitLog) throws {
    if log.frozenCommit != nil {
      // A checkpoint did not finish: its changes and later ones go into one table.
      store.catalogState.withLock { $0.thaw() }
      log.frozenCommit = nil
    }
    try writeEverything(&log, mergingAll: true)
    store.removeUnreferenced(log)
  }

  private func catalogIsBloated() throws -> Bool {
    let snapshot = store.catalogState.withLock { $0.snapshot }
    let tableByteCount = snapshot.tables.reduce(0) { $0 + $1.table.byteCount }
    guard tableByteCount <= Self.rewrittenByteCountMax else { return false }
    let copyByteCount = max(tableByteCount, snapshot.overlay.byteCount)
    return try store.catalogFiles.takenByteCount() > 2 * copyByteCount + max(copyByteCount / 2, 256 << 10)
  }

  /// Writes all changes to tables, and names no journal.
  private func writeEverything(_ log: inout CommitLog, mergingAll: Bool) throws {
    let snapshot = store.catalogState.withLock { $0.snapshot }
    let tables = try writeTable(
      snapshot.overlay, over: snapshot.tables, namedIn: log.superblock.nextUpdate, mergingAll: mergingAll)
    let generation = Generation(
      number: log.newestGeneration + 1, epoch: store.epoch, state: .complete, secret: Random.bytes(32),
      commit: log.commit, tables: tables.map(\.table))
    try log.superblock.update { body in
      body.generations = [generation]
      body.journal = nil
      body.isClean = true
    }
    log.newestGeneration = generation.number
    log.completeGeneration()
    store.catalogState.withLock { catalog in
      catalog.snapshot.tables = tables
      catalog.snapshot.overlay = ChangeMap()
    }
  }

  private func writeTable(
    _ changes: ChangeMap, over tables: [TableFile], namedIn update: UInt64, mergingAll: Bool = false
  ) throws -> [TableFile] {
    try store.catalogFiles.writeTable(
      changes, over: tables, namedIn: update, epoch: store.epoch, mergingAll: mergingAll, log: store.log)
  }
}
