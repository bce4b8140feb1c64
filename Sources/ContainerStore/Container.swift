import CPosix
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
    /// The most memory that a key slot's password hash may ask for. Slots are not authentic before their key is known, so whoever
    /// can write the superblock could ask for a gigabyte.
    public var passwordHashMemoryKiBMax: UInt32 = 256 * 1024

    public init() {}
  }

  public let id: Identifier
  public let mode: Mode
  /// What was found to be wrong, and set right or worked around, when the container was opened.
  public let findings: [Finding]
  public let created: Int64

  let options: Options
  let io: any BlockIO
  let keys: Keyring
  let slabs: SlabStore
  let workers: WorkerThreads
  let session: WriteSession
  let epoch: UInt32
  private let lockFile: any BlockFile
  private let core: Guarded<Core>
  private let flushing: Guarded<FlushState>
  private let contexts = Guarded<[WorkerContext]>([])

  static let checkpointJournalByteCount: UInt64 = 8 << 20
  static let journalCountMax = 8
  private static let groupDelayMilliseconds = 50
  private static let pendingByteCountMax = 4 << 20

  /// The catalog as every caller sees it.
  fileprivate struct Core {
    var records: OrderedRecords
    var counters: CatalogCounters
    var slabCounters: [UInt32: SlabCounter]
    /// Applied to `records`, not yet in the journal.
    var pending = OrderedMap<[UInt8]?>()
    var pendingByteCount = 0
    var pendingRemovals: [Extent] = []
    var flushIsScheduled = false
    var isClosed = false
    /// Why nothing can be written any more.
    var failure: ContainerError?
    /// Removed by durable commits; freed when no reader that began before is left.
    var freeable: [(ticket: UInt64, commit: UInt64, extents: [Extent])] = []
    var nextTicket: UInt64 = 0
    /// A commit stands in the journal whose segments recovery would check: they must stay until a checkpoint.
    var freeingIsHeld = false
    var readers: [UInt64: Int] = [:]
  }

  /// What only the thread that writes the journal touches.
  private struct FlushState: ~Copyable {
    var slot: SuperblockSlot
    let rootKey: SecretBytes
    let cipher: SecretStreamCipher
    var journal: JournalWriter?
    /// The journal before this opening's own.
    var predecessor: JournalHeader.Predecessor?
    var chain: [(id: Identifier, generation: UInt64)]
    var chainByteCount: UInt64
    var newestGeneration: UInt64
    var commit: UInt64
    var durableCommit: UInt64
    /// The generation whose tables were read or written last: the one to keep as second copy.
    var baseGeneration: UInt64
    /// The lock may be somebody else's by now: nothing is written any more.
    var isClosed = false
  }

  // MARK: Create

  /// Makes a container in a new directory and opens it. Throws `alreadyExists` when there is something at `path`, and
  /// `invalidArgument` for an empty passphrase or impossible costs.
  public static func create(
    at path: String, credential: borrowing Credential, options: Options = Options()
  ) throws -> Container {
    try create(io: PosixBlockIO(path), credential: credential, options: options)
  }

  package static func create(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options()
  ) throws -> Container {
    try KeySlot.check(credential, parameters: options.passwordHash)
    do {
      try io.createDirectory("")
    } catch {
      if error.errno == existingFile { throw ContainerError(.alreadyExists, path: io.place) }
      if error.errno == missingFile {
        throw ContainerError(
          .noSuchFile, path: io.place, detail: "the directory that is to hold the container is missing")
      }
      throw ContainerError.from(error)
    }
    do {
      try layDown(io: io, credential: credential, options: options)
    } catch {
      removeRemains(of: io)
      throw (error as? IOFailure).map { ContainerError.from($0).with(path: io.place) } ?? error
    }
    return try open(io: io, credential: credential, mode: .readWrite, options: options)
  }

  /// What a creation that failed had made: the place is free for another try.
  private static func removeRemains(of io: any BlockIO) {
    for name in (try? io.fileNames(in: "catalog")) ?? [] { try? io.remove("catalog/" + name) }
    for name in ["superblock.new", "superblock", "lock"] { try? io.remove(name) }
    for directory in ["journal", "catalog", "slab", ""] { try? io.removeDirectory(directory) }
  }

  private static func layDown(io: any BlockIO, credential: borrowing Credential, options: Options) throws {
    let cipher = SecretStreamCipher(options.cipher)
    let containerID = Identifier.random()
    let rootKey = try SecretBytes.random(count: 32)
    let now = Clock.wallNanoseconds()
    let tableID = Identifier.random()
    var generation = Generation(
      number: 1, epoch: 1, state: .complete, secret: Random.bytes(32), commit: 0, tables: [])
    var body = SuperblockBody(
      created: now, epoch: SuperblockBody.Epoch(number: 1, key: Random.bytes(32)), generation: generation)
    defer { body.wipeSecrets() }
    let keys = try Keyring(container: containerID, body: body)
    for directory in ["journal", "catalog", "slab"] { try io.createDirectory(directory) }
    var records = OrderedRecords()
    records[.state] = CatalogCounters(nextFile: rootFileID + 1, nextSlab: 0).encoded
    let noSecret = [UInt8](repeating: 0, count: Inode.secretByteCount)
    records[.inode(rootFileID)] =
      Inode(kind: .directory, permissions: 0o700, now: now, epoch: 1, secret: noSecret).encoded
    let file = try io.open("catalog/" + tableID.hex, .createNew)
    generation.tables = [
      try Table.write(
        records, to: file, place: Table.Place(container: containerID, table: tableID),
        key: keys.tableKey(tableID, generation: 1), cipher: cipher)
    ]
    body.generations = [generation]
    try file.synchronize()
    try io.synchronizeDirectory("catalog")
    _ = try io.open("lock", .createNew)
    let slot = try KeySlot.make(
      credential, parameters: options.passwordHash, rootKey: rootKey, containerID: containerID, cipher: cipher
    )
    let superblock = try SuperblockSlot.make(
      containerID: containerID, sequence: 1,
      keySlots: [slot] + [KeySlot?](repeating: nil, count: SuperblockSlot.keySlotCount - 1), body: body,
      rootKey: rootKey, cipher: cipher)
    // The superblock comes last and under another name until it is whole: a directory without one is no container.
    let superblockFile = try io.open("superblock.new", .createNew)
    for offset in SuperblockSlot.offsets { try superblockFile.write(superblock.bytes, at: offset) }
    try superblockFile.synchronize()
    try io.rename("superblock.new", to: "superblock")
    try io.synchronizeDirectory("")
  }

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
    do {
      for _ in 0..<5 where mode == .readOnly {
        do {
          return try Container(io: io, credential: credential, mode: mode, options: options)
        } catch ContainerError.rolledBack {
          usleep(10_000)  // a writer may have come and gone since the superblock was read
        }
      }
      return try Container(io: io, credential: credential, mode: mode, options: options)
    } catch let failure as IOFailure {
      throw ContainerError.from(failure).with(path: io.place)
    } catch let error as ContainerError {
      throw error.with(path: io.place)
    }
  }

  private init(io: any BlockIO, credential: borrowing Credential, mode: Mode, options: Options) throws {
    self.io = io
    self.mode = mode
    self.options = options
    let superblockFile = try Superblock.file(of: io)
    lockFile = try ContainerLock.take(io, mode: mode)
    let cipher = SecretStreamCipher(options.cipher)
    let writerIsAlive = try mode == .readOnly && lockFile.isLocked(.writer)
    var (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: writerIsAlive)
    if mode == .readOnly, !slotFindings.isEmpty, try lockFile.isLocked(.writer) {
      // A writer that began just now is updating it.
      (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: true)
    }
    let rootKey = try Superblock.rootKey(slot, credential: credential, options: options, cipher: cipher)
    var body = try slot.open(rootKey: rootKey, cipher: cipher)
    defer { body.wipeSecrets() }
    id = slot.containerID
    created = body.created
    epoch = body.currentEpoch
    keys = try Keyring(container: slot.containerID, body: body)
    if mode == .readWrite, !body.isClean { try Recovery.dropCaches(io) }
    var catalog = try Self.loadCatalog(
      CatalogLoader(
        io: io, container: slot.containerID, body: body, keys: keys, cipher: cipher,
        writerIsAlive: writerIsAlive),
      mode: mode, lockFile: lockFile, acceptsOlderState: options.acceptsOlderState)
    findings = slotFindings + catalog.findings

    let slabCounters = try catalog.records.slabCounters()
    let counters = try catalog.records.catalogCounters()
    slabs = SlabStore(
      io: io, counters: slabCounters, nextSlab: counters.nextSlab,
      startsWriteback: options.durability != .none)
    workers = WorkerThreads(count: options.threadCount, backend: options.cipher)
    session = WriteSession()
    let newest = body.generations[0].number
    let predecessor: JournalHeader.Predecessor? = body.journal.flatMap { journal in
      catalog.end.map { JournalHeader.Predecessor(id: journal.id, generation: journal.generation, end: $0) }
    }
    let records = catalog.records
    catalog.records = OrderedRecords()
    core = Guarded(Core(records: records, counters: counters, slabCounters: slabCounters))
    flushing = Guarded(
      FlushState(
        slot: slot, rootKey: rootKey, cipher: cipher, journal: nil, predecessor: predecessor,
        chain: catalog.journals, chainByteCount: catalog.journalByteCount, newestGeneration: newest,
        commit: catalog.commit, durableCommit: catalog.commit,
        baseGeneration: catalog.generation))
    guard mode == .readWrite else { return }
    try ContainerLock.describeHolder(lockFile)
    let needsRecovery = !body.isClean
    let used = catalog.slabsToSynchronize.intersection(slabCounters.keys)
    let journals = catalog.journals.map(\.id)
    try flushing.withLock { state in
      if needsRecovery {
        // What is accepted becomes durable and is named before anything that it made garbage goes.
        try Recovery.synchronize(io, journals: journals, slabs: used)
        try startJournal(&state)
        if needsCheckpoint(state) { try checkpoint(&state, records: core.withLock { $0.records }) }
      } else if !slotFindings.isEmpty {
        try updateSuperblock(&state) { _ in }
      }
      removeUnreferenced(state)
    }
  }

  /// Reads the catalog, pins what a reader read, and looks for signs of a later state.
  private static func loadCatalog(
    _ loader: CatalogLoader, mode: Mode, lockFile: any BlockFile, acceptsOlderState: Bool
  ) throws -> LoadedCatalog {
    var catalog = try loader.load()
    if mode == .readOnly {
      try ContainerLock.pin(catalog.commit, lockFile)
      // What a living writer adds is later, and no sign.
      if try lockFile.isLocked(.writer) { return catalog }
    }
    let known = Set(catalog.journals.map(\.id) + (loader.body.journal.map { [$0.id] } ?? []))
    guard try loader.hasLaterState(than: catalog.commit, known: known) else { return catalog }
    guard acceptsOlderState else { throw ContainerError(.rolledBack) }
    catalog.findings.append(Finding(.damage, .rolledBack, ContainerError.Code.rolledBack.what))
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
    let durably = options.durability != .none
    try flushing.withLock { state in
      defer { state.isClosed = true }
      if let failure = core.withLock({ $0.failure }) { throw failure }
      try failing(&state) { state in
        try flush(&state, durably: durably)
        guard durably, let journal = state.journal else { return }
        if needsCheckpoint(state) {
          try checkpoint(&state, records: core.withLock { $0.records })
        } else {
          try updateSuperblock(&state) { body in
            body.isClean = true
            body.end = journal.end
          }
        }
      }
    }
  }

  private func needsCheckpoint(_ state: borrowing FlushState) -> Bool {
    state.chain.count >= Self.journalCountMax
      || state.chainByteCount + (state.journal?.byteCount ?? 0) > Self.checkpointJournalByteCount
  }

  /// Makes every change so far durable.
  public func synchronize() throws {
    try requireOpen()
    guard mode == .readWrite else { return }
    try flush(durably: true)
  }

  /// The number of the last commit in the journal.
  public var commit: UInt64 { flushing.withLock { $0.commit } }

  // MARK: Reading

  /// A state of the catalog that stays while `body` runs, with the segments that it names.
  func withSnapshot<R>(_ body: (OrderedRecords) throws -> R) throws -> R {
    let (records, ticket) = try core.withLock { core in
      guard !core.isClosed else { throw ContainerError(.closed) }
      core.readers[core.nextTicket, default: 0] += 1
      return (core.records, core.nextTicket)
    }
    defer {
      core.withLock { core in
        core.readers[ticket]! -= 1
        if core.readers[ticket] == 0 { core.readers[ticket] = nil }
      }
      freeWhatNobodyReads()
    }
    return try body(records)
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
    let context = contexts.withLock { $0.popLast() } ?? WorkerContext(options.cipher)
    defer { contexts.withLock { if $0.count < 4 { $0.append(context) } } }
    return try body(context)
  }

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
      result = try apply(body)
    } catch {
      slabs.discard(stored)
      throw error
    }
    // From here on nothing is given back: when the journal cannot be written, the disk may have the commit all the same.
    switch durability ?? options.durability {
    case .full: try flush(durably: true)
    case .grouped: try flushSoon()
    case .none: if pendingIsLarge { try flush(durably: false) }
    }
    return result
  }

  private func apply<R>(_ body: (Transaction) throws -> R) throws -> R {
    try core.withLock { core -> R in
      guard !core.isClosed else { throw ContainerError(.closed) }
      guard mode == .readWrite else { throw ContainerError(.readOnly) }
      if let failure = core.failure { throw Self.readOnly(after: failure) }
      let transaction = Transaction(
        base: core.records, epoch: epoch, nextFile: core.counters.nextFile)
      let result = try body(transaction)
      core.apply(transaction, nextSlab: slabs.nextSlab)
      slabs.settle(transaction.added)
      return result
    }
  }

  private static func readOnly(after failure: ContainerError) -> ContainerError {
    ContainerError(.readOnly, detail: "a write failed before (\(failure.code.what))", cause: failure)
  }

  private func requireNoFailure() throws {
    if let failure = core.withLock({ $0.failure }) { throw Self.readOnly(after: failure) }
  }

  private var pendingIsLarge: Bool { core.withLock { $0.pendingByteCount > Self.pendingByteCountMax } }

  private func flushSoon() throws {
    if pendingIsLarge {
      try flush(durably: true)
      return
    }
    let mustSchedule = core.withLock { core in
      defer { core.flushIsScheduled = true }
      return !core.flushIsScheduled
    }
    guard mustSchedule else { return }
    DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(Self.groupDelayMilliseconds)) {
      [weak self] in
      // A failure makes the container read-only, and the next call reports it.
      try? self?.flush(durably: true)
    }
  }

  /// Writes what is pending to the journal; durably: segments first, then records, then the barrier.
  private func flush(durably: Bool) throws {
    try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      try failing(&state) { try flush(&$0, durably: durably) }
    }
    freeWhatNobodyReads()
  }

  private func flush(_ state: inout FlushState, durably: Bool) throws {
    let wantsCheckpoint =
      durably && state.chainByteCount + (state.journal?.byteCount ?? 0) > Self.checkpointJournalByteCount
    let (changes, removals, snapshot) = core.withLock { core in
      defer {
        core.pending = OrderedMap()
        core.pendingByteCount = 0
        core.pendingRemovals = []
        core.flushIsScheduled = false
      }
      let changes = core.pending.records(CatalogKey(bytes: [])).map {
        CatalogChange(key: $0.key, value: $0.value)
      }
      return (changes, core.pendingRemovals, wantsCheckpoint ? core.records : nil)
    }
    if changes.isEmpty, state.commit == state.durableCommit { return }
    if durably { try slabs.synchronize() }
    if !changes.isEmpty {
      if state.journal == nil { try startJournal(&state) }
      let commit = state.commit + 1
      try state.journal!.append(changes, commit: commit, segmentsWereDurable: durably)
      state.commit = commit
      if !durably { core.withLock { $0.freeingIsHeld = true } }
    }
    let commit = state.commit
    if durably {
      try state.journal?.synchronize()
      state.durableCommit = commit
    }
    if !removals.isEmpty {
      core.withLock { core in
        core.freeable.append((core.nextTicket, commit, removals))
        core.nextTicket += 1
      }
    }
    if let snapshot { try checkpoint(&state, records: snapshot) }
  }

  /// A new journal for this opening, named in the superblock before its first record.
  private func startJournal(_ state: inout FlushState) throws {
    let header = JournalHeader(
      session: session.id, generation: state.newestGeneration, created: Clock.wallNanoseconds(),
      predecessor: state.predecessor, commit: state.commit)
    let journal = try JournalWriter(io: io, container: id, header: header, keys: keys, cipher: state.cipher)
    try updateSuperblock(&state) { body in
      body.journal = (journal.id, journal.generation)
      body.isClean = false
      body.end = nil
    }
    state.chain.insert((journal.id, journal.generation), at: 0)
    state.journal = journal
  }

  private func updateSuperblock(
    _ state: inout FlushState, _ change: (inout SuperblockBody) throws -> Void
  ) throws {
    var body = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    try change(&body)
    try writeSuperblock(&state, keySlots: state.slot.keySlots, body: body)
  }

  private func writeSuperblock(_ state: inout FlushState, keySlots: [KeySlot?], body: SuperblockBody) throws {
    let slot = try SuperblockSlot.make(
      containerID: id, sequence: state.slot.sequence + 1, keySlots: keySlots, body: body,
      rootKey: state.rootKey,
      cipher: state.cipher)
    let file = try io.open("superblock", .readWrite)
    for offset in SuperblockSlot.offsets {
      try file.write(slot.bytes, at: offset)
      try file.synchronize()
    }
    state.slot = slot
  }

  /// Writes the whole catalog as one table of a new generation and lets go of what only older ones need.
  private func checkpoint(_ state: inout FlushState, records: OrderedRecords) throws {
    guard let journal = state.journal else { return }
    let tableID = Identifier.random()
    var generation = Generation(
      number: state.newestGeneration + 1, epoch: epoch, state: .complete, secret: Random.bytes(32),
      commit: state.commit, tables: [])
    try keys.add(generation)
    let file = try io.open("catalog/" + tableID.hex, .createNew)
    generation.tables = [
      try Table.write(
        records, to: file, place: Table.Place(container: id, table: tableID),
        key: keys.tableKey(tableID, generation: generation.number), cipher: state.cipher)
    ]
    try file.synchronize()
    try io.synchronizeDirectory("catalog")
    let base = state.baseGeneration
    // Everything is in the tables and durable, so this is a clean state until the next commit.
    try updateSuperblock(&state) { body in
      body.generations = [generation] + body.generations.filter { $0.number == base }
      body.isClean = true
      body.end = journal.end
    }
    state.predecessor = JournalHeader.Predecessor(
      id: journal.id, generation: journal.generation, end: journal.end)
    state.newestGeneration = generation.number
    state.baseGeneration = generation.number
    state.chain.removeAll { $0.generation < base }
    state.chainByteCount = 0
    state.journal = nil
    core.withLock { $0.freeingIsHeld = false }
    removeUnreferenced(state)
  }

  /// Removes journals, tables and slabs that no state of the container needs, unless a reader may. What cannot be removed stays:
  /// it is garbage, and no reason to fail.
  private func removeUnreferenced(_ state: borrowing FlushState) {
    guard (try? lockFile.isLocked(.allPins)) == false,
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
  private func journalsInUse(_ body: SuperblockBody) throws -> Set<String> {
    let loader = CatalogLoader(
      io: io, container: id, body: body, keys: keys, cipher: SecretStreamCipher(options.cipher),
      writerIsAlive: false)
    let oldest = body.generations.map(\.number).min() ?? 0
    var journals: Set<String> = []
    var next = body.journal
    while let (id, generation) = next, generation >= oldest, !journals.contains(id.hex) {
      journals.insert(id.hex)
      next = try loader.predecessor(of: id, generation: generation)
    }
    return journals
  }

  private func freeWhatNobodyReads() {
    let isPinned = { (commit: UInt64) in (try? self.lockFile.isLocked(.pins(below: commit))) ?? true }
    let candidates = core.withLock { core -> [(ticket: UInt64, commit: UInt64, extents: [Extent])] in
      guard !core.freeingIsHeld else { return [] }
      let oldestReader = core.readers.keys.min() ?? .max
      let free = core.freeable.filter { $0.ticket < oldestReader }
      core.freeable.removeAll { $0.ticket < oldestReader }
      return free
    }
    guard !candidates.isEmpty else { return }
    var kept: [(ticket: UInt64, commit: UInt64, extents: [Extent])] = []
    for candidate in candidates {
      if isPinned(candidate.commit) {
        kept.append(candidate)
      } else {
        slabs.free(candidate.extents)
      }
    }
    if !kept.isEmpty { core.withLock { $0.freeable = kept + $0.freeable } }
  }

  /// After a failed write nobody knows what the disk has: the container shows what can be read back and takes no more changes.
  private func failing(_ state: inout FlushState, _ body: (inout FlushState) throws -> Void) throws {
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
        if let readBack { core.records = readBack }
      }
      throw reported ?? error
    }
  }

  private func reload(_ state: borrowing FlushState) throws -> OrderedRecords {
    let slot = try Superblock.choose(try io.open("superblock", .read), writerIsAlive: false).0
    var body = try slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    return try CatalogLoader(
      io: io, container: id, body: body, keys: keys, cipher: state.cipher, writerIsAlive: false
    ).load().records
  }

  // MARK: Keys

  /// Adds a way to open the container. Throws `noFreeKeySlot`, and `invalidArgument` for an empty passphrase or impossible costs.
  public func addKey(_ credential: borrowing Credential) throws {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      guard let free = state.slot.keySlots.firstIndex(where: { $0 == nil }) else {
        throw ContainerError(.noFreeKeySlot)
      }
      var slots = state.slot.keySlots
      slots[free] = try KeySlot.make(
        credential, parameters: options.passwordHash, rootKey: state.rootKey, containerID: id,
        cipher: state.cipher)
      try replaceKeySlots(&state, slots)
    }
  }

  /// Removes the ways to open the container that fit the credential, and returns how many. The last one stays: then it throws
  /// `invalidArgument`.
  @discardableResult
  public func removeKey(_ credential: borrowing Credential) throws -> Int {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    return try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      var slots = state.slot.keySlots
      var removed = 0
      for (i, slot) in slots.enumerated() {
        guard let slot, try slot.open(credential, containerID: id, cipher: state.cipher) != nil else {
          continue
        }
        slots[i] = nil
        removed += 1
      }
      guard slots.contains(where: { $0 != nil }) else {
        throw ContainerError(.invalidArgument, detail: "this is the last key; add another first")
      }
      if removed > 0 { try replaceKeySlots(&state, slots) }
      return removed
    }
  }

  private func replaceKeySlots(_ state: inout FlushState, _ slots: [KeySlot?]) throws {
    var body = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    try failing(&state) { try writeSuperblock(&$0, keySlots: slots, body: body) }
  }

  // MARK: Facts

  public struct Info: Sendable {
    public var id: Identifier
    public var created: Int64
    public var commit: UInt64
    public var generation: UInt64
    public var fileCount: Int
    public var directoryCount: Int
    /// Plaintext bytes of all files.
    public var byteCount: UInt64
    public var slabCount: Int
    /// Stored bytes that some file needs.
    public var liveByteCount: UInt64
    /// Bytes of the slabs up to the last that was committed.
    public var slabByteCount: UInt64
    public var keySlots: [String]
  }

  public func info() throws -> Info {
    let (commit, generation, keySlots) = flushing.withLock { state in
      (state.commit, state.newestGeneration, state.slot.keySlots.compactMap { $0.map { "\($0.kind)" } })
    }
    return try withSnapshot { records in
      var info = Info(
        id: id, created: created, commit: commit, generation: generation, fileCount: 0, directoryCount: 0,
        byteCount: 0, slabCount: 0, liveByteCount: 0, slabByteCount: 0, keySlots: keySlots)
      try records.scan(from: .all(.inode)) { key, value in
        guard key.kind == .inode else { return false }
        let inode = try Inode(value)
        if inode.kind == .directory { info.directoryCount += 1 } else { info.fileCount += 1 }
        info.byteCount += inode.size
        return true
      }
      for counter in try records.slabCounters().values {
        info.slabCount += 1
        info.liveByteCount += counter.liveByteCount
        info.slabByteCount += counter.end
      }
      return info
    }
  }

  /// What `verify` needs besides a snapshot.
  func withSuperblock<R>(_ body: (SuperblockSlot, inout SuperblockBody, borrowing SecretBytes) throws -> R)
    throws -> R
  {
    try flushing.withLock { state in
      var opened = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
      defer { opened.wipeSecrets() }
      return try body(state.slot, &opened, state.rootKey)
    }
  }
}

/// A dump shows which container it is and none of its keys and names.
extension Container: CustomReflectable {
  public var customMirror: Mirror { Mirror(self, children: ["id": id, "mode": mode]) }
}

extension Container.Core {
  /// Applies the changes and keeps the books of ids and slabs.
  fileprivate mutating func apply(_ transaction: Transaction, nextSlab: UInt32) {
    guard transaction.staged.count > 0 else { return }
    var changes = transaction.staged
    var touched: Set<UInt32> = []
    for extent in transaction.removed {
      let live = slabCounters[extent.slab]?.liveByteCount ?? 0
      slabCounters[extent.slab, default: SlabCounter()].liveByteCount -= min(
        live, UInt64(extent.storedByteCount))
      touched.insert(extent.slab)
    }
    for extent in transaction.added {
      slabCounters[extent.slab, default: SlabCounter()].liveByteCount += UInt64(extent.storedByteCount)
      let end = max(slabCounters[extent.slab]!.end, extent.offset + UInt64(extent.storedByteCount))
      slabCounters[extent.slab]!.end = end
      touched.insert(extent.slab)
    }
    for slab in touched {
      let counter = slabCounters[slab]!
      if counter.liveByteCount == 0 { slabCounters[slab] = nil }
      changes.put(.slab(slab), counter.liveByteCount == 0 ? nil : counter.encoded)
    }
    counters = CatalogCounters(nextFile: transaction.nextFile, nextSlab: nextSlab)
    changes.put(.state, counters.encoded)
    transaction.finish()
    changes.scan(from: CatalogKey(bytes: [])) { key, value in
      records[key] = value
      pending.put(key, value)
      pendingByteCount += key.bytes.count + (value?.count ?? 0)
      return true
    }
    pendingRemovals += transaction.removed
  }
}

extension OrderedRecords {
  func slabCounters() throws -> [UInt32: SlabCounter] {
    var counters: [UInt32: SlabCounter] = [:]
    for (key, value) in records(.all(.slab)) {
      guard key.bytes.count == 5, let counter = try? SlabCounter(value),
        counter.liveByteCount <= counter.end, counter.end <= SlabStore.byteCountMax
      else {
        throw ContainerError(.catalogDamaged, detail: "a slab counter that cannot be")
      }
      counters[key.bytes.dropFirst().reduce(0) { $0 << 8 | UInt32($1) }] = counter
    }
    return counters
  }

  func catalogCounters() throws -> CatalogCounters {
    guard let bytes = self[.state], let counters = try? CatalogCounters(bytes) else {
      throw ContainerError(.catalogDamaged, detail: "its state record is missing")
    }
    return counters
  }
}

/// The processors that this process may use.
public func processorCount() -> Int { max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))) }
