import Dispatch
import EncryptedFile
import SodiumPrimitives

/// Checkpoints: what journals hold becomes a table, and what only older states need goes.
///
/// A checkpoint begins under the journal's lock: changes so far are frozen, and a new journal under the key of a pending generation
/// takes later ones. Its table is written in the background. Then, under the lock again, the generation is complete.
extension Container {
  static let journalCountMax = 8
  /// At closing, so that opening has little to replay.
  private static let overlayByteCountMaxWhenClosed: UInt64 = 2 << 20
  /// A larger catalog is not written anew for the sake of space.
  private static let rewrittenByteCountMax: UInt64 = 8 << 20

  func checkpointIsDue(_ state: borrowing FlushState, closing: Bool = false) -> Bool {
    let live = core.withLock { $0.liveByteCount }
    // Of changes in memory and in journals: in proportion to what is stored, since both cost space.
    let bounds = options.checkpointByteCounts
    var byteCountMax = min(max(live / 16, bounds.lowerBound), bounds.upperBound)
    if closing { byteCountMax = min(byteCountMax, Self.overlayByteCountMaxWhenClosed) }
    let base = state.baseGeneration
    return state.chainByteCount + (state.journal?.byteCount ?? 0) > byteCountMax
      || state.chain.count { $0.generation >= base } >= Self.journalCountMax
  }

  /// The changes so far were frozen, and are durable in the journal: lets later ones go to a new journal, and writes the table in
  /// the background.
  func beginCheckpoint(_ state: inout FlushState) throws {
    let generation = Generation(
      number: state.newestGeneration + 1, epoch: epoch, state: .pending, secret: Random.bytes(32), commit: 0,
      tables: [])
    try keys.add(generation)
    if let journal = state.journal {
      try journal.synchronizeBoth()
      state.predecessor = JournalHeader.Predecessor(
        id: journal.id, generation: journal.generation, end: journal.end)
    }
    state.journal = nil
    try startJournal(&state, pending: generation)
    state.newestGeneration = generation.number
    state.frozenCommit = state.commit
    state.chainByteCount = 0
    // The new journal has no commit whose segments recovery would check.
    state.lastCheckedRecord = nil
    core.withLock { $0.freeingIsHeld = false }
    writeFrozenInBackground(&state)
  }

  /// After opening: goes on with a checkpoint that a crash interrupted, or begins one that is due.
  func continueCheckpoint(_ state: inout FlushState) throws {
    if state.frozenCommit != nil {
      writeFrozenInBackground(&state)
    } else if state.journal != nil, checkpointIsDue(state) {
      core.withLock { $0.freeze() }
      try beginCheckpoint(&state)
    }
  }

  func writeFrozenInBackground(_ state: inout FlushState) {
    state.checkpointIsRunning = true
    inBackground(background, backgroundWork) { $0.writeFrozen() }
  }

  /// Does something on one of the queues that closing waits for, unless the container is gone by then.
  ///
  /// The reference held meanwhile may become the last. It goes on another queue: there the container is closed, which waits for
  /// what this queue is still to do.
  func inBackground(
    _ queue: DispatchQueue, _ group: DispatchGroup, _ work: @escaping @Sendable (Container) -> Void
  ) {
    group.enter()
    queue.async { [weak self, grouping] in
      let held = self.map { Unmanaged.passRetained($0) }
      if let held { work(held.takeUnretainedValue()) }
      group.leave()
      if let held { grouping.async { held.release() } }
    }
  }

  private func writeFrozen() {
    let snapshot = core.withLock { $0.snapshot }
    guard let frozen = snapshot.frozen else { return }
    let tables = try? writeTable(frozen, over: snapshot.tables)
    flushing.withLock { state in
      state.checkpointIsRunning = false
      state.journalByteCountAtFailure = tables == nil ? state.journal?.byteCount : nil
      // Without room for the table the journals go on; a later flush tries again. What fails below makes the container read-only.
      guard let tables, let commit = state.frozenCommit, (try? requireNoFailure()) != nil else { return }
      try? failing(&state) { state in
        try updateSuperblock(&state) { body in
          body.generations[0].state = .complete
          body.generations[0].commit = commit
          body.generations[0].tables = tables.map(\.table)
          body.generations = [body.generations[0]]
        }
        settleCheckpoint(&state)
        state.frozenCommit = nil
        core.withLock { core in
          core.snapshot.tables = tables
          core.snapshot.frozen = nil
        }
        removeUnreferenced(state)
        takeReserve(&state)  // the catalog has grown
      }
    }
  }

  /// At closing: writes what is in the overlay to a table when there is much of it, after which everything is in tables and no journal
  /// is needed. A catalog that takes far more than its two copies is written anew. False when
  /// there was no need, or no room.
  func writeFinalCheckpoints(_ state: inout FlushState) throws -> Bool {
    let tables = core.withLock { $0.snapshot.tables }
    let isBloated = try catalogIsBloated(state, tables: tables)
    guard isBloated || checkpointIsDue(state, closing: true) else { return false }
    // Without room for a table the journals stay.
    guard (try? writeFinalCheckpoint(&state, mergingAll: isBloated)) != nil else { return false }
    removeUnreferenced(state)
    return true
  }

  /// Writes one table of all that can be read, in two copies, and names no journal.
  func rewriteCatalog(_ state: inout FlushState) throws {
    if state.frozenCommit != nil {
      // A checkpoint did not come to its end: its changes and those since go into one table.
      core.withLock { core in
        var changes = core.snapshot.frozen ?? ChangeMap()
        changes.merge(core.snapshot.overlay)
        core.snapshot.overlay = changes
        core.snapshot.frozen = nil
      }
      state.frozenCommit = nil
    }
    try writeFinalCheckpoint(&state, mergingAll: true)
    removeUnreferenced(state)
  }

  private func catalogIsBloated(_ state: borrowing FlushState, tables: [TableFile]) throws -> Bool {
    let tableByteCount = tables.reduce(0) { $0 + $1.table.byteCount }
    guard tableByteCount <= Self.rewrittenByteCountMax else { return false }
    let overlay = core.withLock { $0.snapshot.overlay }
    let copyByteCount = max(tableByteCount, Self.byteCount(of: overlay))
    var takenByteCount: UInt64 = 0
    for directory in ["catalog", "journal", CopiedFile.copyFolder] {
      for name in try io.fileNames(in: directory) {
        takenByteCount += (try? io.open(directory + "/" + name, .read).size()) ?? 0
      }
    }
    return takenByteCount > 2 * copyByteCount + max(copyByteCount / 2, 256 << 10)
  }

  /// Everything is in tables after it, and no journal is named.
  private func writeFinalCheckpoint(_ state: inout FlushState, mergingAll: Bool) throws {
    let snapshot = core.withLock { $0.snapshot }
    let tables = try writeTable(snapshot.overlay, over: snapshot.tables, mergingAll: mergingAll)
    let generation = Generation(
      number: state.newestGeneration + 1, epoch: epoch, state: .complete, secret: Random.bytes(32),
      commit: state.commit, tables: tables.map(\.table))
    try updateSuperblock(&state) { body in
      body.generations = [generation]
      body.journal = nil
      body.isClean = true
    }
    state.newestGeneration = generation.number
    settleCheckpoint(&state)
    core.withLock { core in
      core.snapshot.tables = tables
      core.snapshot.overlay = ChangeMap()
    }
  }

  /// The newest generation is complete: journals that only the one before needed are not counted any more.
  private func settleCheckpoint(_ state: inout FlushState) {
    state.baseGeneration = state.newestGeneration
    let base = state.baseGeneration
    state.chain.removeAll { $0.generation < base }
  }

  /// Writes changes, merged with as many tables below them as are not much larger, to a new table, durably. Returns that, and the
  /// tables that it has not taken in.
  private func writeTable(
    _ changes: ChangeMap, over tables: [TableFile], mergingAll: Bool = false
  ) throws -> [TableFile] {
    let mergedCount =
      mergingAll ? tables.count : Self.mergedCount(Self.byteCount(of: changes), over: tables.map(\.table))
    let keying = Generation.Table.Keying(epoch: epoch, secret: Random.bytes(32))
    let id = Identifier.random()
    let key = try keys.tableKey(id, keying)
    let file = try CopiedFile.create(io, id, in: .catalog)
    do {
      let first = CatalogKey(bytes: [])
      var records = try MergedCursor(
        [MergedCursor.Source(changes, from: first)]
          + tables.prefix(mergedCount).map { try MergedCursor.Source($0, from: first, .uncached) })
      let isOldest = mergedCount == tables.count
      let written = try ciphers.withCipher { cipher in
        try Table.write(
          to: file, place: Table.Place(container: self.id, table: id), key: key.key, keying: keying,
          cipher: cipher
        ) {
          // What is deleted has nothing to hide below the oldest table.
          try isOldest ? records.nextLive() : records.next()
        }
      }
      try file.synchronizeNew()
      let table = try TableFile(
        written, io: io, container: self.id, key: key, ciphers: ciphers, cache: cache, log: log)
      // What it was made from goes when it is named.
      guard try table.check(isOldest: isOldest).isWhole else {
        throw ContainerError(.tableDamaged, detail: "a table that was just written")
      }
      return [table] + tables.dropFirst(mergedCount)
    } catch {
      CopiedFile.remove(io, id, in: .catalog)
      throw error
    }
  }

  private static func byteCount(of changes: ChangeMap) -> UInt64 {
    var byteCount: UInt64 = 0
    changes.visit { byteCount += UInt64($0.bytes.count + ($1?.count ?? 0) + 7) }
    return byteCount
  }

  /// Tables grow by a factor of two or more from one to the next, so a record is written a few times in its life, and there are few
  /// tables to look into.
  static func mergedCount(_ byteCount: UInt64, over tables: [Generation.Table]) -> Int {
    var sum = byteCount
    var count = 0
    while count < tables.count,
      tables[count].byteCount <= 2 * sum || tables.count - count >= Generation.tableCountMax
    {
      sum += tables[count].byteCount
      count += 1
    }
    return count
  }

  /// Removes journals, tables and slabs that no state of the container needs, unless a reader may. What cannot be removed stays:
  /// it is garbage, and no reason to fail.
  func removeUnreferenced(_ state: borrowing FlushState) {
    guard (try? lockFile.isLocked(.pins(below: state.commit + 1))) == false,
      var body = try? state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
    else { return }
    defer { body.wipeSecrets() }
    guard let journals = try? journalsInUse(body) else { return }
    let tables = Set(body.completeGeneration.tables.map(\.id))
    for (folder, known) in [
      (CopiedFile.Folder.catalog.rawValue, tables), (CopiedFile.Folder.journal.rawValue, journals),
      (CopiedFile.copyFolder, tables.union(journals)),
    ] {
      for name in (try? io.fileNames(in: folder)) ?? [] {
        guard let id = Identifier(hex: name), !known.contains(id) else { continue }
        try? io.remove(folder + "/" + name)
      }
    }
    for name in (try? io.fileNames(in: "slab")) ?? [] {
      guard let number = SlabStore.number(name), !slabs.knows(number) else { continue }
      try? io.remove("slab/" + name)
    }
    slabs.trim()
  }

  /// Whether `name` is one that a container gives to its files in `directory`, so that ``removeUnreferenced(_:)`` may remove the file.
  static func mayRemove(_ name: String, in directory: String) -> Bool {
    directory == "slab" ? SlabStore.number(name) != nil : Identifier(hex: name) != nil
  }

  /// The journals that the generations need.
  func journalsInUse(_ body: SuperblockBody) throws -> Set<Identifier> {
    Set(try loader(body).journals())
  }

  /// Loader for the catalog that a superblock's body names.
  func loader(
    _ body: SuperblockBody, log: FindingLog = FindingLog(), writerIsAlive: Bool = false
  ) -> CatalogLoader {
    CatalogLoader(
      io: io, container: id, body: body, keys: keys, ciphers: ciphers, cache: cache, log: log,
      writerIsAlive: writerIsAlive)
  }
}
