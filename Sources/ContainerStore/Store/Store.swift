import Dispatch
import EncryptedFile
import Locks
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The engine of an opened container: a catalog of records and slabs of sealed segments, which
/// change together in atomic commits.
///
/// The store owns keys, the catalog's state, journal, slabs, checkpoints, compaction and snapshots.
/// Its users (files, open files, messages, bulk work, verification, observing) get a store and
/// nothing else. They read in ``withSnapshot(settled:_:)``, append sealed segments to ``slabs``,
/// and name them in the catalog with ``transaction(storing:durability:_:)``. ``Container`` is their
/// public interface.
final class Store: Sendable {
  let id: Identifier
  let mode: ContainerMode
  let options: ContainerOptions
  /// Nanoseconds since 1970-01-01 UTC.
  let created: Int64
  let io: FencedIO
  /// The findings since the opening.
  let log: FindingLog
  /// The epoch that new files belong to.
  let epoch: UInt32
  let slabs: SlabStore
  let workers: SealingWorkers
  let session: WriteSession
  let lockFile: any BlockFile
  /// The keys and the fence of this opening, which a seal shuts.
  let opening: Opening
  var keyPool: KeyPool { opening.keyPool }

  // Only files in this folder use the following properties.
  let keyring: Keyring
  /// Journals and tables.
  let catalogFiles: CatalogFiles
  let catalogState: Guarded<CatalogState>
  let commitLog: Guarded<CommitLog>
  let openRuns: any RunHolding
  let observers: any CommitObserving
  let compactor: Compactor
  var checkpoints: Checkpoints { Checkpoints(store: self) }
  /// The queue of checkpoints, which run while commits continue.
  let checkpointing = DispatchQueue(label: "checkpoints", qos: .utility)
  /// The queue of grouped commits. A serial queue gets a thread when it needs one; the global
  /// queues share theirs with Swift's tasks.
  let grouping = DispatchQueue(label: "grouped commits")
  /// The queue that gives space back to the file system.
  let freeing = DispatchQueue(label: "freeing", qos: .utility)
  /// The queue that makes segments durable while more are appended.
  let synchronizing = DispatchQueue(label: "segments", qos: .utility)
  /// Calls of `slabs.free` in progress, on any thread.
  let freesUnderWay = DispatchGroup()
  /// All work in the background that closing waits for, except for compaction.
  let backgroundWork = DispatchGroup()
  /// Held while the store is closed, so that a second caller waits for the first.
  let closing = Guarded(OneAtATime())

  // MARK: Open

  /// Opens a container, and as a writer recovers from an unclean end. Throws as
  /// ``Container/open(at:credential:mode:options:)`` does, and `IOFailure`.
  init(
    io: any BlockIO, opening: Opening, mode: ContainerMode, options: ContainerOptions,
    salvaged: SalvagedCatalog?, openRuns: any RunHolding, observers: any CommitObserving,
    rootKey findRootKey: (SuperblockSlot, KeyPool) throws -> SecretKey
  ) throws {
    let keyPool = opening.keyPool
    self.opening = opening
    let io = FencedIO(io, opening.fence)
    self.io = io
    self.mode = mode
    self.options = options
    self.openRuns = openRuns
    self.observers = observers
    let log = FindingLog()
    self.log = log
    _ = try Superblock.file(of: io)
    if mode == .readWrite { try DispatchResources.prepare() }
    lockFile = try ContainerLock.take(io, mode: mode, log: log)
    try CatalogFiles.requireDirectories(of: io)
    let superblockFile = try Superblock.file(of: io)
    let writerIsAlive = try mode == .readOnly && lockFile.isLocked(.writer)
    var (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: writerIsAlive)
    if mode == .readOnly, !slotFindings.isEmpty, try lockFile.isLocked(.writer) {
      // A writer that has just started is updating the superblock.
      (slot, slotFindings) = try Superblock.choose(superblockFile, writerIsAlive: true)
    }
    Openings.shared.add(opening, id: slot.containerID, lockFile: try? lockFile.identity())
    let rootKey = try findRootKey(slot, keyPool)
    var body = try slot.open(rootKey: rootKey)
    defer { body.wipeSecrets() }
    for finding in slotFindings { log.add(finding) }
    id = slot.containerID
    created = body.created
    epoch = body.currentEpoch
    keyring = try Keyring(container: slot.containerID, body: body)
    if mode == .readWrite, !body.isClean { try Recovery.dropCaches(io) }
    catalogFiles = CatalogFiles(
      io: io, container: slot.containerID, keys: keyring, ciphers: CipherPool(options.cipher, in: keyPool),
      cache: BlockCache(byteCountMax: options.catalogCacheByteCount))
    var loader = catalogFiles.loader(body, log: log, writerIsAlive: writerIsAlive)
    loader.readsBothCopies = mode == .readWrite && !body.isClean
    loader.salvages = options.salvages
    var loaded = try loader.load(
      mode, slot.sequence, lockFile: lockFile, acceptsOlderState: options.acceptsOlderState)
    if let salvaged {
      guard salvaged.update == slot.sequence else { throw ContainerError(.locked, path: io.place) }
      loaded.snapshot = CatalogSnapshot(overlay: salvaged.catalog)
    }
    let (counters, slabCounters) = try loaded.snapshot.counters(mode, log)
    let ownership = Ownership(io: io, lockFile: lockFile, slot: slot)
    slabs = SlabStore(
      io: io, counters: slabCounters, nextSlab: counters.nextSlab,
      startsWriteback: options.durability != .none,
      requireOwn: { byName throws(IOFailure) in try byName ? ownership.require() : ownership.requireContents()
      })
    workers = SealingWorkers(threadCount: options.threadCount, backend: options.cipher, in: keyPool)
    session = WriteSession(clocks: options.sessionClocks)
    compactor = Compactor(options)
    catalogState = Guarded(
      CatalogState(snapshot: loaded.snapshot, counters: counters, slabCounters: slabCounters))
    commitLog = Guarded(
      CommitLog(
        io: io,
        superblock: SuperblockFile(
          io: io, ownership: ownership, slot: slot, rootKey: rootKey),
        body, loaded))
    try opening.attach(self)
    guard mode == .readWrite else { return }
    guard slot.minimumWriter <= SuperblockSlot.formatVersion else {
      throw ContainerError(
        .unsupportedFormat,
        detail: "only programs for format \(slot.minimumWriter) or later write to it; it opens for reading")
    }
    try? ContainerLock.describeHolder(lockFile)  // optional, and there may be no room for it
    try beginWriting(
      recovering: body.isClean ? nil : loaded, superblockIsUneven: !slotFindings.isEmpty,
      knownSlabs: Set(slabCounters.keys))
  }

  /// The first steps of a writer: recovery after an unclean end, and the removal of garbage.
  private func beginWriting(
    recovering loaded: LoadedCatalog?, superblockIsUneven: Bool, knownSlabs: Set<UInt32>
  ) throws {
    try commitLog.withLock { log in
      log.reserve.find()
      // After a failure here, nothing may be written that an ordinary close writes.
      do {
        // The newer copy may be in memory alone, after the end of a process: no file is made for the
        // next update before it is durable.
        if superblockIsUneven { try io.open(Superblock.name, .readWrite).synchronize() }
        if let loaded {
          try usingReserve(&log) { _ in try Recovery.level(io, loaded.unevenRecords) }
          // The accepted state becomes durable and is named before its garbage is removed.
          try Recovery.synchronize(
            io, journals: loaded.journals.map(\.id),
            slabs: loaded.slabsToSynchronize.intersection(knownSlabs))
          try startJournal(&log)
        } else if superblockIsUneven {
          try log.superblock.update { _ in }
        }
        removeUnreferenced(log)
        takeReserve(&log)
        try checkpoints.continueInterrupted(&log)
      } catch {
        catalogState.withLock {
          $0.failure = (error as? IOFailure).map(ContainerError.from) ?? ContainerError(.ioFailed)
        }
        throw error
      }
    }
  }

  deinit {
    try? close()
    // A seal may have shut the opening without having seen the store.
    Closing(store: self).end()
  }

  // MARK: Close

  /// Makes everything durable (except with durability `none`), records that the container was
  /// closed cleanly, wipes the keys, and releases the lock. Every later call throws `closed`, and so do calls
  /// that are under way in other threads.
  func close() throws { try closing.withLock { _ in try Closing(store: self).close() } }

  /// See ``Container/close(_:because:)``. Returns the paths of open files with changes that are lost.
  func seal(because reason: String?) -> [String] {
    let stores = Openings.shared.seal(opening, because: reason)
    let lost = stores.flatMap { $0.openRuns.endOpenings() }
    for store in stores { Closing(store: store).endSealed() }
    return Set(lost).sorted()
  }

  /// Makes closing write every table anew.
  func rewriteCatalogAtClosing() { commitLog.withLock { $0.mergesAllTables = true } }

  var isClosed: Bool { keyPool.isShut || catalogState.withLock { $0.isClosed } }

  /// The error of a call after the end.
  var closed: ContainerError { opening.closed }

  func requireOpen() throws {
    if isClosed { throw closed }
  }

  static func readOnly(after failure: ContainerError) -> ContainerError {
    ContainerError(.readOnly, detail: "a write failed before (\(failure.code.what))", cause: failure)
  }

  func requireNoFailure() throws {
    if let failure = catalogState.withLock({ $0.failure }) { throw Self.readOnly(after: failure) }
  }

  /// Runs `work` on one of the queues that closing waits for, unless the store is gone by then.
  ///
  /// The reference held meanwhile may become the last one. It is released on another queue: the
  /// release then closes the store, and closing waits for the remaining work of this queue.
  func inBackground(
    _ queue: DispatchQueue, _ group: DispatchGroup, _ work: @escaping @Sendable (Store) -> Void
  ) {
    group.enter()
    queue.async { [weak self, grouping] in
      let held = self.map { Unmanaged.passRetained($0) }
      if let held { work(held.takeUnretainedValue()) }
      group.leave()
      if let held { grouping.async { held.release() } }
    }
  }
}

/// A dump of anything that has a store shows which container it is, and none of its keys and names.
extension Store: CustomReflectable {
  var customMirror: Mirror { Mirror(self, children: ["id": id, "mode": mode]) }
}

/// The number of processors that this process may use.
public func processorCount() -> Int { max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))) }
