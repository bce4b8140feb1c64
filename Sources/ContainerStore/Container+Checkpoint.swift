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
    // What is dropped when this checkpoint is complete is what the newest table was made from: it has to be whole.
    let isWhole = snapshot.tables.first.map { (try? $0.check()) != nil } ?? true
    let written = isWhole ? try? writeTable(frozen, over: snapshot.tables) : nil
    flushing.withLock { state in
      state.checkpointIsRunning = false
      state.journalByteCountAtFailure = written == nil ? state.journal?.byteCount : nil
      // Without room for the table the journals go on; a later flush tries again. What fails below makes the container read-only.
      guard let written, let commit = state.frozenCommit, (try? requireNoFailure()) != nil else { return }
      try? failing(&state) { state in
        let base = state.baseGeneration
        let tables = [written.file] + snapshot.tables.dropFirst(written.mergedCount)
        try updateSuperblock(&state) { body in
          body.generations[0].state = .complete
          body.generations[0].commit = commit
          body.generations[0].tables = tables.map(\.table)
          body.generations = body.generations.enumerated().filter { $0 == 0 || $1.number == base }.map(
            \.element)
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
  /// is needed. A catalog that takes far more than two copies of itself is written anew, twice, so that only those stay. False when
  /// there was no need, or no room.
  func writeFinalCheckpoints(_ state: inout FlushState) throws -> Bool {
    let tables = core.withLock { $0.snapshot.tables }
    // A newest generation that is damaged goes with the second one written now.
    let isBloated = try usedSecondCopy || catalogIsBloated(state, tables: tables)
    guard isBloated || checkpointIsDue(state, closing: true) else { return false }
    guard try writeFinalCheckpoint(&state, mergingAll: isBloated) else { return false }
    if isBloated { _ = try writeFinalCheckpoint(&state, mergingAll: true) }
    removeUnreferenced(state)
    return true
  }

  var usedSecondCopy: Bool { findings.contains { $0.kind == .usedPreviousGeneration } }

  private func catalogIsBloated(_ state: borrowing FlushState, tables: [TableFile]) throws -> Bool {
    let tableByteCount = tables.reduce(0) { $0 + $1.table.byteCount }
    guard tableByteCount <= Self.rewrittenByteCountMax else { return false }
    let overlay = core.withLock { $0.snapshot.overlay }
    let copyByteCount = max(tableByteCount, Self.byteCount(of: overlay))
    var takenByteCount: UInt64 = 0
    for directory in ["catalog", "journal"] {
      for name in try io.fileNames(in: directory) {
        takenByteCount += try io.open(directory + "/" + name, .read).size()
      }
    }
    return takenByteCount > 2 * copyByteCount + max(copyByteCount / 2, 256 << 10)
  }

  private func writeFinalCheckpoint(_ state: inout FlushState, mergingAll: Bool) throws -> Bool {
    guard let journal = state.journal else { return false }
    let snapshot = core.withLock { $0.snapshot }
    guard let written = try? writeTable(snapshot.overlay, over: snapshot.tables, mergingAll: mergingAll)
    else {
      return false
    }
    let base = state.baseGeneration
    let tables = [written.file] + snapshot.tables.dropFirst(written.mergedCount)
    let generation = Generation(
      number: state.newestGeneration + 1, epoch: epoch, state: .complete, secret: Random.bytes(32),
      commit: state.commit, tables: tables.map(\.table))
    try updateSuperblock(&state) { body in
      body.generations = [generation] + body.generations.filter { $0.number == base }
      // A journal that no generation is left to open is not named.
      let isNeeded = body.generations.contains { $0.number == journal.generation }
      body.journal = isNeeded ? (journal.id, journal.generation) : nil
      body.isClean = true
      body.end = isNeeded ? journal.end : nil
    }
    state.newestGeneration = generation.number
    settleCheckpoint(&state)
    core.withLock { core in
      core.snapshot.tables = tables
      core.snapshot.overlay = ChangeMap()
    }
    return true
  }

  /// The newest generation is complete: journals that only generations before the last one needed are not counted any more.
  private func settleCheckpoint(_ state: inout FlushState) {
    let base = state.baseGeneration
    state.chain.removeAll { $0.generation < base }
    state.baseGeneration = state.newestGeneration
  }

  private struct WrittenTable {
    var file: TableFile
    /// How many of the newest tables it has taken in.
    var mergedCount: Int
  }

  /// Writes changes, merged with as many tables below them as are not much larger, to a new table, durably.
  private func writeTable(
    _ changes: ChangeMap, over tables: [TableFile], mergingAll: Bool = false
  ) throws -> WrittenTable {
    let mergedCount =
      mergingAll ? tables.count : Self.mergedCount(Self.byteCount(of: changes), over: tables.map(\.table))
    let keying = Generation.Table.Keying(epoch: epoch, secret: Random.bytes(32))
    let id = Identifier.random()
    let key = try keys.tableKey(id, keying)
    let file = try io.open(Table.name(id), .createNew)
    do {
      let first = CatalogKey(bytes: [])
      var records = try MergedCursor(
        [MergedCursor.Source(changes, from: first)]
          + tables.prefix(mergedCount).map { try MergedCursor.Source($0, from: first, cached: false) })
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
      try file.synchronize()
      try io.synchronizeDirectory("catalog")
      return WrittenTable(
        file: try TableFile(
          written, file: file, container: self.id, key: key, ciphers: ciphers, cache: cache),
        mergedCount: mergedCount)
    } catch {
      try? io.remove(Table.name(id))
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
    // Tables of format 1 have their key from the one generation that names them.
    if let last = tables.lastIndex(where: { $0.keying == nil }) { count = max(count, last + 1) }
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
    let tables = Set(body.generations.flatMap(\.tables).map(\.id.hex))
    for name in (try? io.fileNames(in: "catalog")) ?? []
    where !tables.contains(name) && Identifier(hex: name) != nil {
      try? io.remove("catalog/" + name)
    }
    for name in (try? io.fileNames(in: "journal")) ?? []
    where !journals.contains(name) && Identifier(hex: name) != nil {
      try? io.remove("journal/" + name)
    }
    for name in (try? io.fileNames(in: "slab")) ?? [] {
      guard name.count == 8, let number = UInt32(name, radix: 16), !slabs.knows(number) else { continue }
      try? io.remove("slab/" + name)
    }
    slabs.trim()
  }

  /// Names of the journals that some generation needs.
  func journalsInUse(_ body: SuperblockBody) throws -> Set<String> {
    let loader = CatalogLoader(
      io: io, container: id, body: body, keys: keys, ciphers: ciphers, cache: cache, writerIsAlive: false)
    let oldest = body.generations.map(\.number).min() ?? 0
    var journals: Set<String> = []
    var next = body.journal
    while let (id, generation) = next, generation >= oldest, !journals.contains(id.hex) {
      journals.insert(id.hex)
      next = try loader.predecessor(of: id, generation: generation)
    }
    return journals
  }
}
