import Dispatch
public import EncryptedFile
public import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An opened container: an encrypted file tree in a directory of the native file system.
///
/// Any thread may call. Calls block while they read, write or compute: from an async context use the async variants of
/// SecureFiles. Every change is atomic; when it is durable is the matter of ``Durability``.
public final class Container: Sendable {
  public enum Mode: Sendable {
    /// Owns the container; there is one such opening at a time.
    case readWrite
    /// Sees the state as of the opening, also while another process writes.
    case readOnly
  }

  /// When a change is on the disk. Closing, ``synchronize()`` and arrivals in an inbox are durable in `full` and `grouped`.
  public enum Durability: String, Sendable {
    /// Before the call returns.
    case full
    /// Within 50 ms. Power loss or a kill may take the changes of the last 50 ms, all or from some moment on.
    case grouped
    /// When the system likes. Power loss may take everything since the last ``Container/synchronize()``, and what is left is
    /// checked when the container is opened again.
    case none
  }

  public struct Options: Sendable {
    public var durability = Durability.grouped
    public var cipher = CipherBackend.preferred
    /// For new key slots.
    public var passwordHash = PasswordHash.Parameters.standard
    /// Threads for sealing and opening large files.
    public var threadCount = processorCount()
    /// Opens a container whose superblock was put back to an older one, instead of throwing `rolledBack`. Opening for writing then
    /// removes the later state for good.
    public var acceptsOlderState = false
    /// The most memory that a key slot's password hash may ask for; all slots together cost at most 16 passes over as much. Slots are
    /// not authentic before their key is known, so whoever can write the superblock could ask for a gigabyte, eight times.
    public var passwordHashMemoryKiBMax: UInt32 = 256 * 1024
    /// Bytes of opened catalog blocks that are kept in memory.
    public var catalogCacheByteCount = 8 << 20
    /// The pace at which space is gained back in the background; 0: only when ``Container/compact(control:)`` is called.
    public var compactionBytesPerSecond: UInt64 = 64 << 20
    /// Bytes that open files may hold in memory before they are sealed and stored.
    public var writeCacheByteCount = 32 << 20
    /// Opens with the commits before a damaged one, instead of throwing.
    package var salvages = false
    /// Between which numbers of bytes of changes a checkpoint begins; where in between depends on what is stored.
    package var checkpointByteCounts: ClosedRange<UInt64> = 1 << 20...8 << 20
    /// Less waste than that begins no compaction in the background.
    package var backgroundWasteByteCountMin: UInt64 = 8 << 20
    /// The clocks that draw a writer's session anew when one of them jumps.
    var sessionClocks: WriteSession.Clocks = WriteSession.machineClocks

    public init() {}
  }

  public let id: Identifier
  public let mode: Mode
  /// What was found to be wrong, and set right or worked around, since the container was opened. Damage that costs nothing, because
  /// there is a second copy, stays as it is: ``repair(at:credential:options:acceptsLoss:)`` mends it.
  public var findings: [Finding] { log.findings }
  public let created: Int64

  let options: Options
  let io: any BlockIO
  let log = FindingLog()
  let keys: Keyring
  let slabs: SlabStore
  let workers: WorkerThreads
  let session: WriteSession
  let epoch: UInt32
  let ciphers: CipherPool
  let cache: BlockCache
  let openFiles: OpenFiles
  let observers = ChangeObservers()
  let arrivals = ArrivalsUnderWay()
  let lockFile: any BlockFile
  let core: Guarded<CatalogState>
  let flushing: Guarded<FlushState>
  /// Checkpoints, while commits go on.
  let background = DispatchQueue(label: "checkpoints", qos: .utility)
  /// Grouped commits. A serial queue has a thread when it needs one; the global queues share theirs with Swift's tasks.
  let grouping = DispatchQueue(label: "grouped commits")
  let freeing = DispatchQueue(label: "freeing", qos: .utility)
  /// Making what arrives durable, while more arrives.
  let receiving = DispatchQueue(label: "arrivals", qos: .utility)
  /// Calls of `slabs.free` in progress, on any thread.
  let freesUnderWay = DispatchGroup()
  let compacting = DispatchQueue(label: "compaction", qos: .utility)
  let compactionStop = Cancellation()
  /// One compaction at a time.
  let compaction = Guarded(OneAtATime())
  let backgroundWork = DispatchGroup()
  let backgroundCompaction = DispatchGroup()
  /// Held while the container is closed, so that whoever closes it as well waits for that.
  private let closing = Guarded(OneAtATime())
  private let contexts = Guarded<[WorkerContext]>([])

  // MARK: Open

  /// Opens a container. Throws `notAContainer`, `unsupportedFormat`, `superblockTorn`, `superblockAltered`, `wrongKey`,
  /// `locked`, and for what stands behind the superblock `journalDamaged`, `journalAltered`, `tableDamaged`.
  public static func open(
    at path: String, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options()
  ) throws -> Container {
    try open(io: PosixBlockIO(path), credential: credential, mode: mode, options: options)
  }

  package static func open(
    io: any BlockIO, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options()
  ) throws -> Container {
    try open(io: io, mode: mode, options: options) { slot, cipher in
      try Superblock.rootKey(slot, credential: credential, options: options, cipher: cipher)
    }
  }

  private static func open(
    io: any BlockIO, mode: Mode, options: Options,
    rootKey: (SuperblockSlot, SecretStreamCipher) throws -> SecretBytes
  ) throws -> Container {
    do {
      for _ in 0..<5 where mode == .readOnly {
        do {
          return try Container(io: io, mode: mode, options: options, rootKey: rootKey)
        } catch ContainerError.rolledBack {
          usleep(10_000)  // a writer may have come and gone since the superblock was read
        }
      }
      return try Container(io: io, mode: mode, options: options, rootKey: rootKey)
    } catch let failure as IOFailure {
      throw ContainerError.from(failure).with(path: io.place)
    } catch let error as ContainerError {
      throw error.with(path: io.place)
    }
  }

  /// The container as it is now, for reading, in this process: it stays so while this one goes on, for as long as it is open, for
  /// instance for a backup. What was removed or replaced meanwhile keeps its space until it is closed.
  public func snapshot() throws -> Container {
    try requireOpen()
    if mode == .readWrite {
      if let failure = try writeBack().values.first { throw translated(failure, path: io.place) }
      // What it is to see has to be in the journal.
      try flush(durably: options.durability != .none)
    }
    return try Self.open(io: io, mode: .readOnly, options: options) { slot, _ in
      guard slot.containerID == id else { throw ContainerError(.notAContainer, path: io.place) }
      var copy = try SecretBytes(count: flushing.withLock { $0.rootKey.count })
      flushing.withLock { state in
        state.rootKey.withUnsafeBytes { key in copy.withUnsafeMutableBytes { $0.copyMemory(from: key) } }
      }
      return copy
    }
  }

  private init(
    io: any BlockIO, mode: Mode, options: Options,
    rootKey findRootKey: (SuperblockSlot, SecretStreamCipher) throws -> SecretBytes
  ) throws {
    self.io = io
    self.mode = mode
    self.options = options
    let superblockFile = try Superblock.file(of: io)
    if mode == .readWrite { try DispatchTimers.prepare() }
    lockFile = try ContainerLock.take(io, mode: mode)
    // Throws for one that leads elsewhere, also where the copy of what is in it would do.
    for directory in Self.directories { try io.requireDirectory(directory) }
    let cipher = SecretStreamCipher(options.cipher)
    let writerIsAlive = try mode == .readOnly && lockFile.isLocked(.writer)
    var (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: writerIsAlive)
    if mode == .readOnly, !slotFindings.isEmpty, try lockFile.isLocked(.writer) {
      // A writer that began just now is updating it.
      (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: true)
    }
    let rootKey = try findRootKey(slot, cipher)
    var body = try slot.open(rootKey: rootKey, cipher: cipher)
    defer { body.wipeSecrets() }
    for finding in slotFindings { log.add(finding) }
    id = slot.containerID
    created = body.created
    epoch = body.currentEpoch
    keys = try Keyring(container: slot.containerID, body: body)
    if mode == .readWrite, !body.isClean { try Recovery.dropCaches(io) }
    ciphers = CipherPool(options.cipher)
    cache = BlockCache(byteCountMax: options.catalogCacheByteCount)
    var loader = CatalogLoader(
      io: io, container: slot.containerID, body: body, keys: keys, ciphers: ciphers, cache: cache, log: log,
      writerIsAlive: writerIsAlive)
    loader.readsBothCopies = mode == .readWrite && !body.isClean
    loader.salvages = options.salvages
    let catalog = try Self.loadCatalog(
      loader, mode: mode, lockFile: lockFile, acceptsOlderState: options.acceptsOlderState)
    let (counters, slabCounters) = try Self.counters(catalog.snapshot, mode: mode, log)
    slabs = SlabStore(
      io: io, counters: slabCounters, nextSlab: counters.nextSlab,
      startsWriteback: options.durability != .none)
    workers = WorkerThreads(count: options.threadCount, backend: options.cipher)
    session = WriteSession(clocks: options.sessionClocks)
    openFiles = OpenFiles(byteCountMax: options.writeCacheByteCount)
    let newest = body.generations[0].number
    core = Guarded(CatalogState(snapshot: catalog.snapshot, counters: counters, slabCounters: slabCounters))
    flushing = Guarded(
      FlushState(
        slot: slot, rootKey: rootKey, cipher: cipher, journal: nil, predecessor: catalog.end,
        chain: catalog.journals, chainByteCount: catalog.overlayByteCount, newestGeneration: newest,
        baseGeneration: body.completeGeneration.number, frozenCommit: catalog.frozenCommit,
        commit: catalog.commit,
        durableCommit: catalog.commit))
    guard mode == .readWrite else { return }
    guard slot.minimumWriter <= SuperblockSlot.formatVersion else {
      throw ContainerError(
        .unsupportedFormat,
        detail: "only programs for format \(slot.minimumWriter) or later write to it; it opens for reading")
    }
    try? ContainerLock.describeHolder(lockFile)  // a courtesy, and there may be no room for it
    let needsRecovery = !body.isClean
    let used = catalog.slabsToSynchronize.intersection(slabCounters.keys)
    let journals = catalog.journals.map(\.id)
    try flushing.withLock { state in
      state.hasReserve = (try? reservedByteCount()) ?? 0 > 0
      // What fails here must not be followed by what an ordinary close writes.
      do {
        if needsRecovery {
          try usingReserve(&state) { _ in try Recovery.level(io, catalog.unevenRecords) }
          // What is accepted becomes durable and is named before anything that it made garbage goes.
          try Recovery.synchronize(io, journals: journals, slabs: used)
          try startJournal(&state)
        } else if !slotFindings.isEmpty {
          try updateSuperblock(&state) { _ in }
        }
        removeUnreferenced(state)
        takeReserve(&state)
        try continueCheckpoint(&state)
      } catch {
        core.withLock {
          $0.failure = (error as? IOFailure).map(ContainerError.from) ?? ContainerError(.ioFailed)
        }
        throw error
      }
    }
  }

  /// Only a writer needs them: what can be read without them can be read.
  private static func counters(
    _ snapshot: CatalogSnapshot, mode: Mode, _ log: FindingLog
  ) throws -> (CatalogCounters, [UInt32: SlabCounter]) {
    do {
      return (try snapshot.catalogCounters(), try snapshot.slabCounters())
    } catch let error as ContainerError
      where mode == .readOnly && (error.code == .tableDamaged || error.code == .catalogDamaged)
    {
      log.add(
        Finding(
          .damage, error.code == .tableDamaged ? .tableDamaged : .catalogInconsistent, error.detail ?? ""))
      return (CatalogCounters(nextFile: CatalogCounters.nextFileMax, nextSlab: 0), [:])
    }
  }

  /// Reads the catalog, pins what a reader read, and looks for signs of a later state.
  private static func loadCatalog(
    _ loader: CatalogLoader, mode: Mode, lockFile: any BlockFile, acceptsOlderState: Bool
  ) throws -> LoadedCatalog {
    let catalog = try loader.load()
    if mode == .readOnly {
      try ContainerLock.pin(catalog.commit, lockFile)
      // What a living writer adds is later, and no sign.
      if try lockFile.isLocked(.writer) { return catalog }
    }
    // What is given up is later, too.
    guard !loader.log.findings.contains(where: { $0.kind == .journalDamaged }),
      try loader.hasLaterState(than: catalog)
    else { return catalog }
    guard acceptsOlderState else { throw ContainerError(.rolledBack) }
    loader.log.add(Finding(.damage, .rolledBack, ContainerError.Code.rolledBack.what))
    return catalog
  }

  deinit {
    try? close()
    workers.stop()
  }

  // MARK: Close

  /// Makes everything durable (except with ``Durability/none``), notes that the container was closed cleanly, and lets the lock
  /// go. Every later call throws `closed`, and so do changes that are under way in
  /// other threads; what only reads is waited for. Throws when changes since the last durable moment could not be written. Closing
  /// twice is fine.
  public func close() throws {
    defer { observers.finish() }
    openFiles.close()
    let written = Result { () throws in
      if let failure = try writeBack().values.first { throw failure }
    }
    try closing.withLock { _ in try closeStore() }
    // Told after the container is closed in order: what was committed is safe.
    try written.get()
  }

  private func closeStore() throws {
    if mode == .readWrite, !isClosed {
      stopCompaction()
      // One in the background ends soon now.
      backgroundCompaction.wait()
      if options.durability != .none, options.compactionBytesPerSecond > 0 {
        let policy = CompactionPolicy.closing(liveByteCount: core.withLock { $0.liveByteCount })
        // Not when a compaction is under way: it may be the one from whose progress report this is called.
        _ = try? compaction.withLockIfFree { _ in try compactAlone(policy, bytesPerSecond: nil) }
      }
    }
    let wasClosed = core.withLock { core in
      defer { core.isClosed = true }
      return core.isClosed
    }
    guard !wasClosed else { return }
    defer {
      // Nothing of this opening may reach the disk once another one can have the lock.
      slabs.close()
      workers.stop()
      lockFile.unlock(LockRange(offset: 0, count: 0))
    }
    guard mode == .readWrite else { return }
    // A flush under way may have begun a checkpoint; from here on none does.
    flushing.withLock { _ in }
    backgroundWork.wait()
    backgroundCompaction.wait()
    let durably = options.durability != .none
    try flushing.withLock { state in
      defer { state.isClosed = true }
      if let failure = core.withLock({ $0.failure }) { throw failure }
      try failing(&state) { state in
        try flush(&state, durably: durably)
        if state.mustRewriteCatalog { return try rewriteCatalog(&state) }
        guard durably, let journal = state.journal else { return }
        if state.frozenCommit == nil, try writeFinalCheckpoints(&state) { return }
        try journal.synchronizeBoth()
        try updateSuperblock(&state) { body in
          body.isClean = true
          body.journal?.knownEnd = journal.knownEnd
        }
      }
    }
    freeWhatNobodyReads()
  }

  /// Makes every change so far durable.
  public func synchronize() throws {
    try requireOpen()
    guard mode == .readWrite else { return }
    if let failure = try writeBack().values.first { throw translated(failure, path: io.place) }
    try synchronizeCatalog()
  }

  func synchronizeCatalog() throws { try flush(durably: true) }

  /// The number of the last commit in the journal.
  public var commit: UInt64 { flushing.withLock { $0.commit } }

  // MARK: Reading

  /// A state of the catalog that stays while `body` runs, with the segments that it names. What was written through open files is
  /// in it; throws when that could not be stored.
  /// `settled`: with the counters of slabs as they are with the rest.
  func withSnapshot<R>(settled: Bool = false, _ body: (CatalogSnapshot) throws -> R) throws -> R {
    do { try writeBack() } catch ContainerError.readOnly {
      // After a failed write the container shows what the disk has.
    } catch ContainerError.diskFull {
      // There is no room for what was written to open files: everything else can be read.
      let unstored = openFiles.changedFiles
      return try withStoredCatalog(settled: settled) { snapshot in
        var snapshot = snapshot
        snapshot.unstored = unstored
        return try body(snapshot)
      }
    }
    return try withStoredCatalog(settled: settled, body)
  }

  /// The same without what stands in the write cache.
  func withStoredCatalog<R>(settled: Bool = false, _ body: (CatalogSnapshot) throws -> R) throws -> R {
    let (snapshot, ticket) = try core.withLock { core in
      guard !core.isClosed else { throw ContainerError(.closed) }
      if settled { core.settleCounters(nextSlab: slabs.nextSlab) }
      core.readers[core.nextTicket, default: 0] += 1
      return (core.snapshot, core.nextTicket)
    }
    defer {
      core.withLock { core in
        core.readers[ticket]! -= 1
        if core.readers[ticket] == 0 { core.readers[ticket] = nil }
      }
      freeWhatNobodyReads()
    }
    return try reportingIO { try body(snapshot) }
  }

  /// What the disk refuses while the catalog is read is an error of the container's. Who knows a path puts it there.
  private func reportingIO<R>(_ body: () throws -> R) throws -> R {
    do {
      return try body()
    } catch let failure as IOFailure {
      throw isClosed ? ContainerError(.closed) : ContainerError.from(failure)
    }
  }

  /// Keeps stored bytes that are live now from being given back while `body` runs.
  func withStoredBytesKept<R>(_ body: () throws -> R) throws -> R {
    let ticket = try core.withLock { core in
      guard !core.isClosed else { throw ContainerError(.closed) }
      core.readers[core.nextTicket, default: 0] += 1
      return core.nextTicket
    }
    defer {
      let mayFree = core.withLock { core in
        core.readers[ticket]! -= 1
        if core.readers[ticket] == 0 { core.readers[ticket] = nil }
        let mayFree =
          core.readers[ticket] == nil && !core.freeable.isEmpty && !core.freeingIsScheduled
        if mayFree { core.freeingIsScheduled = true }
        return mayFree
      }
      if mayFree { freeSoon() }
    }
    return try body()
  }

  /// Giving space back takes a system call for each extent: neither a small read nor a writing back waits for that.
  private func freeSoon() {
    freeing.async { [weak self] in
      guard let self else { return }
      core.withLock { $0.freeingIsScheduled = false }
      freeWhatNobodyReads()
    }
  }

  /// Extents that a commit removed while open files still needed them are needed no more.
  func release(_ extents: [Extent]) {
    guard !extents.isEmpty else { return }
    flushing.withLock { state in
      core.withLock { core in
        // No flush is under way: the commit that removed them is either pending as a whole or in the journal.
        if !core.pending.isEmpty {
          core.pendingRemovals += extents
        } else if core.failure == nil, !core.isClosed {
          core.freeable.append((core.nextTicket, state.commit, extents))
          core.nextTicket += 1
        }
      }
    }
    freeWhatNobodyReads()
  }

  var isClosed: Bool { core.withLock { $0.isClosed } }

  func requireOpen() throws {
    if isClosed { throw ContainerError(.closed) }
  }

  func fileKey(_ id: UInt64, _ inode: Inode) throws -> FileKey {
    try keys.fileKey(id, epoch: inode.epoch, secret: inode.secret)
  }

  /// Lends the calling thread a cipher and buffers.
  func withContext<R>(_ body: (WorkerContext) throws -> R) rethrows -> R {
    let context = borrowContext()
    defer { giveBack(context) }
    return try body(context)
  }

  func borrowContext() -> WorkerContext {
    contexts.withLock { $0.popLast() } ?? WorkerContext(options.cipher)
  }

  func giveBack(_ context: WorkerContext) { contexts.withLock { if $0.count < 4 { $0.append(context) } } }

  // MARK: Writing

  /// Takes so many ids for new files.
  func takeFileIDs(_ count: Int) -> UInt64 {
    core.withLock { core in
      defer { core.counters.nextFile += UInt64(count) }
      return core.counters.nextFile
    }
  }

  /// Runs `body` on the catalog and makes its changes visible together, or none of them when it throws; then `stored`, what was
  /// sealed for this change, is given back. `durability` overrides that of the container for this change.
  func transaction<R>(
    storing stored: [Extent] = [], durability: Durability? = nil, _ body: (Transaction) throws -> R
  ) throws -> R {
    let result: R
    do {
      result = try reportingIO { try apply(body, addsSegments: !stored.isEmpty) }
    } catch {
      slabs.discard(stored)
      throw error
    }
    observers.wake()
    // From here on nothing is given back: when the journal cannot be written, the disk may have the commit all the same.
    switch durability ?? options.durability {
    case .full: try flush(durably: true)
    case .grouped: try flushSoon()
    case .none: if pendingIsLarge { try flush(durably: flushing.withLock { checkpointIsDue($0) }) }
    }
    return result
  }

  private func apply<R>(_ body: (Transaction) throws -> R, addsSegments: Bool) throws -> R {
    try core.withLock { core -> R in
      guard !core.isClosed else { throw ContainerError(.closed) }
      guard mode == .readWrite else { throw ContainerError(.readOnly) }
      if let failure = core.failure { throw Self.readOnly(after: failure) }
      if core.diskIsFull, addsSegments { throw ContainerError(.diskFull) }
      guard core.counters.nextFile < CatalogCounters.nextFileMax else {
        throw ContainerError(
          .cannotStore, detail: "there is no further id for a file: make another container")
      }
      let transaction = Transaction(
        base: core.snapshot, epoch: epoch, nextFile: core.counters.nextFile)
      let result = try body(transaction)
      observers.note(transaction)
      transaction.tellApplied()
      core.apply(
        transaction, stillNeeded: openFiles.remove(transaction.dropped),
        unneeded: openFiles.unpin(transaction.unpinned))
      slabs.settle(transaction.added)
      return result
    }
  }

  static func readOnly(after failure: ContainerError) -> ContainerError {
    ContainerError(.readOnly, detail: "a write failed before (\(failure.code.what))", cause: failure)
  }

  func requireNoFailure() throws {
    if let failure = core.withLock({ $0.failure }) { throw Self.readOnly(after: failure) }
  }
}

/// A dump shows which container it is and none of its keys and names.
extension Container: CustomReflectable {
  public var customMirror: Mirror { Mirror(self, children: ["id": id, "mode": mode]) }
}

func physicalMemoryByteCount() -> Int {
  let (count, overflows) = Int(sysconf(Int32(_SC_PHYS_PAGES))).multipliedReportingOverflow(
    by: Int(getpagesize()))
  return overflows ? .max : count
}

/// The processors that this process may use.
public func processorCount() -> Int { max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))) }
