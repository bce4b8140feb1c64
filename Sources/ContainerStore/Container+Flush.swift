import Dispatch
import EncryptedFile
import SodiumPrimitives

/// What only the thread that writes the journal touches.
struct FlushState: ~Copyable {
  var slot: SuperblockSlot
  let rootKey: SecretBytes
  let cipher: SecretStreamCipher
  var journal: JournalWriter?
  /// The journal before this opening's own.
  var predecessor: JournalHeader.Predecessor?
  /// Journals that some generation needs, newest first.
  var chain: [(id: Identifier, generation: UInt64)]
  /// Total length of the journals of earlier openings whose changes are in the overlay.
  var chainByteCount: UInt64
  /// The one that keys new journals: it may be pending.
  var newestGeneration: UInt64
  /// The generation whose tables are in use.
  var baseGeneration: UInt64
  /// The last commit in the frozen changes, which a pending generation is going to hold.
  var frozenCommit: UInt64?
  var checkpointIsRunning = false
  /// When the last attempt at a checkpoint failed.
  var journalByteCountAtFailure: UInt64?
  var hasReserve = false
  /// Closing writes every table anew.
  var mustRewriteCatalog = false
  var commit: UInt64
  var durableCommit: UInt64
  /// The journal's last record whose segments recovery would check, until a durable record says that it was durable.
  var lastCheckedRecord: UInt64?
  /// Somebody is going to look whether the known end is to be stated.
  var knownEndIsScheduled = false
  /// When the superblock was last written, by the monotonic clock.
  var superblockTime = Clock.monotonicNanoseconds()
  /// The lock may be somebody else's by now: nothing is written any more.
  var isClosed = false
}

extension Container {
  private static let groupDelayMilliseconds = 50
  private static let pendingByteCountMax = 4 << 20
  /// Nanoseconds between updates of the journal's known end in the superblock. The last update follows the last commit.
  private static let superblockInterval: Int64 = 60_000_000_000

  var pendingIsLarge: Bool { core.withLock { $0.pendingByteCount > Self.pendingByteCountMax } }

  func flushSoon() throws {
    if pendingIsLarge {
      try flush(durably: true)
      return
    }
    let mustSchedule = core.withLock { core in
      defer { core.flushIsScheduled = true }
      return !core.flushIsScheduled
    }
    guard mustSchedule else { return }
    grouping.asyncAfter(deadline: .now() + .milliseconds(Self.groupDelayMilliseconds)) {
      [weak self] in
      // A failure makes the container read-only, and the next call reports it.
      try? self?.flush(durably: true)
    }
  }

  /// Writes what is pending to the journal; durably: segments first, then records, then the barrier.
  func flush(durably: Bool) throws {
    try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      try failing(&state) { try flush(&$0, durably: durably) }
    }
    freeWhatNobodyReads()
    if durably {
      retakeReserve()
      compactWhenDue()
    }
  }

  func flush(_ state: inout FlushState, durably: Bool) throws {
    let isDue = durably && state.frozenCommit == nil && checkpointIsDue(state)
    let (changes, removals, freezes) = core.withLock { core in
      let pending = core.takePending(nextSlab: slabs.nextSlab)
      let freezes = isDue && !core.isClosed
      if freezes { core.freeze() }
      return (pending.changes, pending.removals, freezes)
    }
    if changes.isEmpty, state.commit == state.durableCommit, !freezes { return }
    if durably {
      try slabs.synchronize()
      // What goes waits for a record that says that those written without a sync are durable: the next one can.
      if !changes.isEmpty, let last = state.lastCheckedRecord, last > state.journal?.durableThrough ?? 0,
        !removals.isEmpty || core.withLock({ !$0.freeable.isEmpty })
      {
        try state.journal?.synchronize()
      }
    }
    if !changes.isEmpty {
      if state.journal == nil { try startJournal(&state) }
      let commit = state.commit + 1
      var records: [CatalogChange] = []
      records.reserveCapacity(changes.count)
      changes.visit { records.append(CatalogChange(key: $0, value: $1)) }
      // Sealed once: what a first try left on the disk in part is the same bytes.
      let frames = state.journal!.seal(records, commit: commit, segmentsWereDurable: durably)
      do {
        try usingReserve(&state) { try $0.journal!.append(frames) }
      } catch {
        state.journal!.cut()
        throw error
      }
      state.commit = commit
      if !durably {
        core.withLock { $0.freeingIsHeld = true }
        state.lastCheckedRecord = state.journal!.end.record
      }
    }
    let commit = state.commit
    if durably {
      let durableThrough = state.journal?.durableThrough ?? 0
      try state.journal?.synchronize()
      state.durableCommit = commit
      // What was just written says so, and is durable itself: recovery looks at no segments of before.
      if !changes.isEmpty, let last = state.lastCheckedRecord, last <= durableThrough {
        state.lastCheckedRecord = nil
        core.withLock { $0.freeingIsHeld = false }
      }
      try stateKnownEndWhenDue(&state)
    }
    if !removals.isEmpty {
      core.withLock { core in
        core.freeable.append((core.nextTicket, commit, removals))
        core.nextTicket += 1
      }
    }
    if freezes {
      try beginCheckpoint(&state)
    } else if durably, state.frozenCommit != nil, !state.checkpointIsRunning, checkpointIsDue(state),
      let journal = state.journal, journal.byteCount > 2 * (state.journalByteCountAtFailure ?? 0),
      !core.withLock({ $0.isClosed })
    {
      // There was no room for the table; the journal has grown by as much again since.
      writeFrozenInBackground(&state)
    }
  }

  /// After a durable commit: bounds what lies beyond what the superblock proves.
  private func stateKnownEndWhenDue(_ state: inout FlushState) throws {
    guard let journal = state.journal, journal.knownEnd.record < journal.end.record,
      state.durableCommit == state.commit
    else { return }
    guard Clock.monotonicNanoseconds() - state.superblockTime > Self.superblockInterval else {
      return stateKnownEndLater(&state)
    }
    try journal.synchronizeBoth()
    try updateSuperblock(&state) { $0.journal?.knownEnd = journal.knownEnd }
  }

  /// Also when nobody commits any more.
  private func stateKnownEndLater(_ state: inout FlushState) {
    guard !state.knownEndIsScheduled else { return }
    state.knownEndIsScheduled = true
    grouping.asyncAfter(deadline: .now() + .nanoseconds(Int(Self.superblockInterval) + 1_000_000)) {
      [weak self] in
      self?.flushing.withLock { state in
        state.knownEndIsScheduled = false
        guard let self, !state.isClosed, (try? self.requireNoFailure()) != nil else { return }
        // A failure makes the container read-only, and the next call reports it.
        try? self.failing(&state) { try self.stateKnownEndWhenDue(&$0) }
      }
    }
  }

  /// A new journal for this opening, named in the superblock before its first record.
  func startJournal(_ state: inout FlushState, pending: Generation? = nil) throws {
    let header = JournalHeader(
      session: session.id, generation: pending?.number ?? state.newestGeneration,
      created: Clock.wallNanoseconds(),
      predecessor: state.predecessor, commit: state.commit)
    var writer: JournalWriter?
    try usingReserve(&state) {
      writer = try JournalWriter(io: io, container: id, header: header, keys: keys, cipher: $0.cipher)
    }
    let journal = writer!
    try updateSuperblock(&state) { body in
      if let pending { body.generations.insert(pending, at: 0) }
      body.journal = SuperblockBody.Journal(
        id: journal.id, generation: journal.generation, knownEnd: journal.knownEnd)
      body.isClean = false
    }
    state.chain.insert((journal.id, journal.generation), at: 0)
    state.journal = journal
  }

  func updateSuperblock(
    _ state: inout FlushState, _ change: (inout SuperblockBody) throws -> Void
  ) throws {
    var body = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    try change(&body)
    try writeSuperblock(&state, keySlots: state.slot.keySlots, body: body)
  }

  func writeSuperblock(_ state: inout FlushState, keySlots: [KeySlot?], body: SuperblockBody) throws {
    let slot = try SuperblockSlot.make(
      containerID: id, sequence: state.slot.sequence + 1, keySlots: keySlots, body: body,
      rootKey: state.rootKey,
      cipher: state.cipher)
    let file = try io.open(Superblock.name, .readWrite)
    // The copy in use stays whole until the other one is.
    let second = try file.read(SuperblockSlot.byteCount, at: SuperblockSlot.offsets[1])
    let offsets =
      second == state.slot.bytes ? SuperblockSlot.offsets : SuperblockSlot.offsets.reversed()
    for offset in offsets {
      try file.write(slot.bytes, at: offset)
      try file.synchronize()
    }
    state.slot = slot
    state.superblockTime = Clock.monotonicNanoseconds()
  }

  func freeWhatNobodyReads() {
    let isPinned = { (commit: UInt64) in (try? self.lockFile.isLocked(.pins(below: commit))) ?? true }
    // What readers keep stays in the row, so that whoever comes after the last of them finds it there. Most often they keep all: one
    // question tells, however many there are.
    let first = core.withLock { core in core.freeingIsHeld ? nil : core.freeable.first?.commit }
    guard let first, !isPinned(first) else { return }
    let commits = core.withLock { core -> [UInt64] in
      let oldestReader = core.readers.keys.min() ?? .max
      return core.freeable.filter { $0.ticket < oldestReader }.map(\.commit)
    }
    // A reader that needs one commit's needs those of all later ones.
    var low = 0
    var high = commits.count
    while low < high {
      let middle = (low + high) / 2
      if isPinned(commits[middle]) { high = middle } else { low = middle + 1 }
    }
    guard low > 0 else { return }
    let commit = commits[low - 1]
    let free = core.withLock { core -> [Extent]? in
      guard !core.freeingIsHeld else { return nil }
      let oldestReader = core.readers.keys.min() ?? .max
      let free = core.freeable.filter { $0.ticket < oldestReader && $0.commit <= commit }
      core.freeable.removeAll { $0.ticket < oldestReader && $0.commit <= commit }
      freesUnderWay.enter()
      return free.flatMap(\.extents)
    }
    guard let free else { return }
    slabs.free(free)
    freesUnderWay.leave()
  }

  /// Makes every change durable, and waits until all threads have freed the space that no reader needs any more.
  func settleSpace() throws {
    try synchronizeCatalog()
    freesUnderWay.wait()
  }

  /// After a failed write nobody knows what the disk has: the container shows what can be read back and takes no more changes.
  func failing(_ state: inout FlushState, _ body: (inout FlushState) throws -> Void) throws {
    do {
      try body(&state)
    } catch {
      let reported = (error as? IOFailure).map(ContainerError.from) ?? (error as? ContainerError)
      let readBack = try? reload(state)
      core.withLock { core in
        core.failure = reported ?? ContainerError(.ioFailed, cause: error)
        // What was not written is not written later either: it may build on what is lost.
        core.pending = OrderedMap()
        core.pendingByteCount = 0
        core.pendingRemovals = []
        core.freeable = []
        if let readBack { core.snapshot = readBack }
        core.changeNumber += 1
        observers.lose()
      }
      observers.wake()
      throw reported ?? error
    }
  }

  private func reload(_ state: borrowing FlushState) throws -> CatalogSnapshot {
    let slot = try Superblock.choose(try io.open(Superblock.name, .read), writerIsAlive: false).0
    var body = try slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    return try loader(body).load().snapshot
  }
}
