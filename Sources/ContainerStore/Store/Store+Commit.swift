import Dispatch
import EncryptedFile
import SodiumPrimitives

// The commit. A transaction has changed the catalog in memory; its records are pending. A durable
// commit writes them in these steps:
//
// 1. Take the pending records, with the counters of slabs, under the catalog's lock.
// 2. fdatasync every slab that was appended to: segments reach the disk before their records.
// 3. Seal the records, and append them to both copies of the journal.
// 4. fdatasync the journal's first copy: the commit is durable.
// 5. From time to time, fdatasync the second copy, and state the journal's end in the superblock.
// 6. Begin a checkpoint when the journals are long.
// 7. Free what the commit removed, when no reader needs it.
//
// A crash before step 3 loses the commit and leaves segments that no record names: dead bytes that
// the next opening cuts off. A crash during step 3 or 4 leaves nothing, the whole commit, or a torn
// tail that the next opening drops. After step 4 the commit is kept. A commit that need not be
// durable skips steps 2, 4 and 5; recovery opens its segments before it accepts it.
//
// The first commit of an opening makes the journal's files before step 3, and names the journal in
// the superblock. These are steps 2 to 8 of the table in DESIGN.md, "The store and its users".

extension Store {
  /// Nanoseconds between updates of the journal's known end in the superblock. The last update
  /// follows the last commit.
  private static let superblockInterval: Int64 = 60_000_000_000

  /// Writes the pending changes to the journal. The caller holds the commit log's lock.
  func commitPending(_ log: inout CommitLog, durably: Bool) throws {
    let isDue = durably && log.frozenCommit == nil && checkpoints.isDue(log)
    let (changes, removals, freezes) = catalogState.withLock { catalog in
      let pending = catalog.takePending(nextSlab: slabs.nextSlab)
      let freezes = isDue && !catalog.isClosed
      if freezes { catalog.freeze() }
      return (pending.changes, pending.removals, freezes)
    }
    if changes.isEmpty, log.commit == log.durableCommit, !freezes { return }
    if durably {
      try slabs.synchronize()
      // Freeing waits for a record that states that the records written without a sync are durable.
      // With a sync now, the next record can state that.
      if !changes.isEmpty, let last = log.lastCheckedRecord, last > log.journal?.durableThrough ?? 0,
        !removals.isEmpty || catalogState.withLock({ !$0.freeable.isEmpty })
      {
        try log.journal?.synchronize()
      }
    }
    let givesBack = { !removals.isEmpty || changes.givesBack }
    if !changes.isEmpty {
      try append(changes, to: &log, segmentsWereDurable: durably, givesBack: givesBack)
    }
    if durably { try synchronizeJournal(&log, hasNewRecord: !changes.isEmpty) }
    if !removals.isEmpty {
      let commit = log.commit
      catalogState.withLock { $0.freeable.append(removals, removedBy: commit) }
    }
    if freezes {
      try checkpoints.begin(&log)
    } else if durably {
      checkpoints.retry(&log)
    }
  }

  /// Appends one commit to both copies of the journal.
  private func append(
    _ changes: ChangeMap, to log: inout CommitLog, segmentsWereDurable: Bool, givesBack: () -> Bool
  ) throws {
    if log.journal == nil { try startJournal(&log, givesBack: givesBack()) }
    try log.superblock.requireOwn()
    let commit = log.commit + 1
    var records: [CatalogChange] = []
    records.reserveCapacity(changes.count)
    changes.visit { records.append(CatalogChange(key: $0, value: $1)) }
    // The records are sealed once: a second attempt writes the same bytes over those that the first
    // one left on the disk in part.
    let frames = try log.journal!.seal(records, commit: commit, segmentsWereDurable: segmentsWereDurable)
    do {
      try usingReserve(&log, givesBack: givesBack()) { try $0.journal!.append(frames) }
    } catch {
      log.journal!.cut()
      throw error
    }
    log.commit = commit
    if !segmentsWereDurable {
      catalogState.withLock { $0.freeable.isHeld = true }
      log.lastCheckedRecord = log.journal!.end.record
    }
  }

  private func synchronizeJournal(_ log: inout CommitLog, hasNewRecord: Bool) throws {
    let durableThrough = log.journal?.durableThrough ?? 0
    try log.journal?.synchronize()
    log.durableCommit = log.commit
    // The new record states that, and is durable itself: recovery checks no segments of earlier
    // records.
    if hasNewRecord, let last = log.lastCheckedRecord, last <= durableThrough {
      log.lastCheckedRecord = nil
      catalogState.withLock { $0.freeable.isHeld = false }
    }
    try stateKnownEndWhenDue(&log)
  }

  // MARK: Journal

  /// Starts a new journal for this opening, named in the superblock before its first record.
  func startJournal(
    _ log: inout CommitLog, pending: Generation? = nil, givesBack: @autoclosure () -> Bool = true
  ) throws {
    let header = JournalHeader(
      session: session.id, generation: pending?.number ?? log.newestGeneration,
      created: Clock.wallNanoseconds(), predecessor: log.predecessor, commit: log.commit)
    var writer: JournalWriter?
    try usingReserve(&log, givesBack: givesBack()) {
      writer = try JournalWriter(
        io: io, container: id, namedIn: $0.superblock.nextUpdate, header: header, keys: keyring,
        cipher: SecretStreamCipher(options.cipher, in: keyPool))
    }
    let journal = writer!
    try log.superblock.update { body in
      if let pending { body.generations.insert(pending, at: 0) }
      body.journal = SuperblockBody.Journal(
        id: journal.id, generation: journal.generation, knownEnd: journal.knownEnd)
      body.isClean = false
    }
    log.chain.insert((journal.id, journal.generation), at: 0)
    log.journal = journal
  }

  /// Limits the records that lie beyond the end that the superblock proves. Called after a durable
  /// commit.
  private func stateKnownEndWhenDue(_ log: inout CommitLog) throws {
    guard let journal = log.journal, journal.knownEnd.record < journal.end.record,
      log.durableCommit == log.commit
    else { return }
    guard Clock.monotonicNanoseconds() - log.superblock.writeTime > Self.superblockInterval else {
      return stateKnownEndLater(&log)
    }
    try journal.synchronizeBoth()
    try log.superblock.update { $0.journal?.knownEnd = journal.knownEnd }
  }

  /// Sets a timer, so that the end is stated even when no further commit follows.
  private func stateKnownEndLater(_ log: inout CommitLog) {
    guard !log.knownEndIsScheduled else { return }
    log.knownEndIsScheduled = true
    grouping.asyncAfter(deadline: .now() + .nanoseconds(Int(Self.superblockInterval) + 1_000_000)) {
      [weak self] in
      self?.commitLog.withLock { log in
        log.knownEndIsScheduled = false
        guard let self, !log.isClosed, (try? self.requireNoFailure()) != nil else { return }
        // A failure makes the container read-only, and the next call reports it.
        try? self.failing(&log) { try self.stateKnownEndWhenDue(&$0) }
      }
    }
  }

  // MARK: Failure

  /// Runs `body`, which writes. After a failed write the contents of the disk are unknown: the
  /// container then shows what can be read back, and accepts no more changes.
  func failing(_ log: inout CommitLog, _ body: (inout CommitLog) throws -> Void) throws {
    do {
      try body(&log)
    } catch {
      // Nothing failed: what was to be written is given up.
      if keyPool.isShut { throw closed }
      let reported = (error as? IOFailure).map(ContainerError.from) ?? (error as? ContainerError)
      let readBack = try? reload(log)
      catalogState.withLock { catalog in
        catalog.fail(reported ?? ContainerError(.ioFailed, cause: error), showing: readBack)
        observers.lose()
      }
      observers.wake()
      throw reported ?? error
    }
  }

  private func reload(_ log: borrowing CommitLog) throws -> CatalogSnapshot {
    let slot = try Superblock.choose(try io.open(Superblock.name, .read), writerIsAlive: false).0
    var body = try slot.open(rootKey: log.superblock.rootKey)
    defer { body.wipeSecrets() }
    let readBack = try catalogFiles.loader(body).load().snapshot
    // The tables that are open may know more.
    if let loss = readBack.loss { throw loss }
    return readBack
  }
}
