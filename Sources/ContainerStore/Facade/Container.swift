import EncryptedFile
import Locks
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
/// Every change is atomic; ``Durability`` determines when it is on the disk. ``ContainerReading``
/// has the methods for reading.
public final class Container: ContainerReading {
  public typealias Mode = ContainerMode
  public typealias Durability = ContainerDurability
  public typealias Options = ContainerOptions

  public let reader: ContainerReader
  let writeBack: WriteBack
  let messages: Messages
  let unlockedBy: Guarded<Identifier>
  private let observers: ChangeObservers

  private init(_ opened: OpenedStore, with key: Identifier) {
    unlockedBy = Guarded(key)
    writeBack = WriteBack(store: opened.store, files: opened.files)
    reader = ContainerReader(store: opened.store, writeBack: writeBack)
    messages = Messages(opened.store)
    observers = opened.observers
  }

  // MARK: Create

  /// Creates a container in a new directory and opens it. An empty directory, or one with an
  /// unfinished creation, is taken over. Throws `alreadyExists` if there is anything else at
  /// `path`, `locked` while another process creates a container there, and `invalidArgument` for an
  /// empty passphrase, impossible costs, and a label that is empty or longer than 63 bytes.
  public static func create(
    at path: String, credential: borrowing Credential, label: String? = nil, options: Options = Options()
  ) throws -> Container {
    try create(io: options.disk(path), credential: credential, label: label, options: options)
  }

  package static func create(
    io: any BlockIO, credential: borrowing Credential, label: String? = nil, options: Options = Options()
  ) throws -> Container {
    try Creation.run(io: io, credential: credential, label: label, options: options)
    return try open(io: io, credential: credential, options: options)
  }

  /// Throws the error that `create` throws if it cannot take over the item at `path`.
  package static func requireUnfinished(at path: String) throws(ContainerError) {
    try Creation.requirePossible(PosixBlockIO(path))
  }

  // MARK: Open

  /// Throws `notAContainer` if there is no container at `path`. It looks for the superblock, and needs no key.
  package static func requireContainer(at path: String) throws {
    do {
      _ = try Superblock.file(of: PosixBlockIO(path))
    } catch let failure as IOFailure {
      throw ContainerError.from(failure).with(path: path)
    }
  }

  /// Opens a container. Throws `notAContainer`, `unsupportedFormat`, `superblockTorn`,
  /// `superblockAltered`, `wrongKey` and `locked`, and for the catalog `journalDamaged`,
  /// `journalAltered` and `tableDamaged`.
  ///
  /// `beforeHash` and `afterHash` are called around each password hash (some 0.2 s and 64 MiB each; a passphrase is tried on the
  /// slots of all passphrases, a raw key takes none), before anything is made of the hash. For writing, the container's lock is held
  /// meanwhile; readers open at the same time, and one that meets a writer's change begins again. What the calls throw ends the
  /// opening. So an app counts attempts before it knows how they end, and stops what is not wanted any more:
  ///
  ///     try Container.open(at: path, credential: .passphrase(typed), beforeHash: { _ in try attempts.begin() })
  ///
  /// `beforeHash` gets the id of the key that is tried.
  public static func open(
    at path: String, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options(),
    beforeHash: (Identifier) throws -> Void = { _ in }, afterHash: () throws -> Void = {}
  ) throws -> Container {
    try open(
      io: options.disk(path), credential: credential, mode: mode, options: options, beforeHash: beforeHash,
      afterHash: afterHash)
  }

  package static func open(
    io: any BlockIO, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options(),
    beforeHash: (Identifier) throws -> Void = { _ in }, afterHash: () throws -> Void = {}
  ) throws -> Container {
    try withoutActuallyEscaping(beforeHash) { before in
      try withoutActuallyEscaping(afterHash) { after in
        try open(io, credential, mode, options, HashObserver(before: before, after: after), with: nil)
      }
    }
  }

  /// With a catalog in the place of that on the disk.
  static func open(
    _ io: any BlockIO, _ credential: borrowing Credential, _ mode: Mode, _ options: Options,
    _ hashing: HashObserver, with salvaged: SalvagedCatalog?
  ) throws -> Container {
    var id = Identifier.zero
    let opened = try openedStore(io, mode: mode, options: options, salvaged: salvaged) { slot, pool in
      try Superblock.rootKey(slot, credential: credential, options: options, in: pool, hashing) { id = $0 }
    }
    return Container(opened, with: id)
  }

  /// The id of the key that opened the container, or of the one that has replaced it since.
  public var openingKey: Identifier { unlockedBy.withLock { $0 } }

  /// A read-only view of the current state that does not change while the container does, for
  /// instance for a backup.
  public func snapshot() throws -> ContainerSnapshot { try reader.snapshot() }

  // MARK: Close

  /// Makes everything durable (except with ``ContainerDurability/none``), records that the
  /// container was closed cleanly, wipes its keys and what is opened of it, and releases the lock. Every later call throws `closed`, and so
  /// do calls in progress in other threads. Throws if changes
  /// since the last durable moment could not be written. A second call does nothing.
  public func close() throws {
    defer { observers.finish() }
    if store.keyPool.isShut { return store.keyPool.shut() }
    writeBack.files.endOpenings()
    let written = Result { () throws in
      if let failure = try writeBack.run().values.first { throw failure }
    }
    try store.close()
    // Thrown after the container is closed in order: committed changes are safe.
    try written.get()
  }

  /// How ``close(_:because:)`` closes.
  public enum Closing: Sendable {
    /// As ``close()``.
    case stored
    /// At once, whatever is under way: nothing is stored any more. It takes milliseconds, also while the disk hangs.
    case now
  }

  /// Closes the container, in the middle of whatever is under way when that is wanted.
  ///
  /// With ``Closing/now`` all keys of the container in this process are wiped when this returns, those of its snapshots and of other
  /// openings of it, too, and nothing begins any more that changes its files: it is *sealed*. On the disk it is as after the end of the process.
  /// Handles, streams, snapshots and whatever else stands on it may still be referenced. All of them throw `closed`, with the reason as detail; so do calls that
  /// are under way. What had begun to be written is waited for elsewhere, and holds the lock until then; an opening of the container in this process waits
  /// for that, ten seconds at most. Opened data that is still in memory is wiped meanwhile.
  ///
  /// Returns the paths of open files with bytes that are lost, as they were given when the files were opened; a second call returns none. Throws as ``close()`` does with ``Closing/stored``.
  ///
  ///     let lost = try container.close(.now, because: "locked")
  @discardableResult
  public func close(_ closing: Closing, because reason: String? = nil) throws -> [String] {
    guard closing == .now else {
      try close()
      return []
    }
    return store.seal(because: reason)
  }

  package var isClosed: Bool { store.isClosed }

  /// Wipes memory that is kept for the next reads and writes, after a secret was read or written.
  package func wipeSpareMemory() {
    store.workers.removeAll()
    writeBack.files.tally.releaseSpares()
  }

  /// A pool of keys that was read from the container, which goes when the container is sealed.
  package func addDependent(_ pool: KeyPool) {
    store.opening.addDependent(pool)
  }

  /// Makes every change so far durable.
  public func synchronize() throws {
    try store.requireOpen()
    guard mode == .readWrite else { return }
    if let failure = try writeBack.run().values.first {
      throw store.translated(failure, path: store.place)
    }
    try store.flush(durably: true)
  }

  // MARK: Destroy

  /// The id of the container at `path`, which its superblock has in clear: also of one that no key opens any more. Throws `notAContainer`.
  public static func id(at path: String) throws -> Identifier {
    try reportingIO(at: path) { try Destruction.id(in: PosixBlockIO(path)) }
  }

  /// Destroys the container of that id at `path`, without a key: nothing opens it again.
  ///
  /// `acknowledge` is called when the key slots are overwritten on the disk, in the time of three syncs. When this returns, the container's files
  /// are removed as far as they can be, which takes the longer the more there are; files that are not a container's stay, and so does their
  /// directory. When it is interrupted, whoever creates or destroys a container there goes on with
  /// it. Not reached: copies and backups, what readers in other processes have in memory, and older blocks that the disk keeps of its own accord,
  /// as flash does, and file systems that copy on write. Without a passphrase or key, those are as good as before.
  ///
  /// Throws `notAContainer`, `invalidArgument` for another container than that of `id`, and `locked` while it is open for writing. One that this process is closing is waited
  /// for, ten seconds at most.
  ///
  ///     try container.close(.now, because: "wiped")
  ///     try Container.destroy(at: path, id: container.id)
  public static func destroy(at path: String, id: Identifier, acknowledge: () -> Void = {}) throws {
    try reportingIO(at: path) { try Destruction.run(PosixBlockIO(path), id: id, acknowledge: acknowledge) }
  }

  package static func destroy(io: any BlockIO, id: Identifier) throws { try Destruction.run(io, id: id) }

  private static func reportingIO<R>(at path: String, _ body: () throws -> R) throws -> R {
    do { return try body() } catch let failure as IOFailure {
      throw ContainerError.from(failure).with(path: path)
    }
  }

  // MARK: Observing

  /// The container's directory in the native file system; nil for a container elsewhere.
  package var directory: OpenDirectory? { store.io.directory }

  /// Observes the item at a path and, if it is a directory, everything below it: every creation,
  /// change, move and removal by this process from now on. There need not be an item at the path
  /// yet. Links in the path are resolved once, now.
  ///
  /// Changes are reported in the order of the commits, when they are visible to everyone, which may
  /// be before they are durable. Bytes written through handles are reported when they are written
  /// back. No commit waits for an observer: if more than `countMax` changes would be buffered, all
  /// of them are dropped and replaced by ``ContainerChange/overflowed``; it is followed by changes
  /// made after it was read.
  ///
  /// Reads the catalog below the path, and takes some 100 bytes of memory per file while it is
  /// observed. Throws `closed`, `invalidName`, `notADirectory` if a file is on the path,
  /// `tooManyLinks`, `tableDamaged`.
  public func changes(at path: String, bufferingAtMost countMax: Int = 4096) throws -> ContainerChanges {
    precondition(countMax > 0, "at least one change can wait")
    let place = try StorePath(path)
    return try store.namingPath(path) {
      try observers.observe(place, bufferingAtMost: countMax, in: store)
    }
  }
}

/// A store with the objects that take part in its transactions.
struct OpenedStore {
  let store: Store
  let files: OpenFiles
  let observers: ChangeObservers
}

/// Opens a store. For reading, the opening is repeated if a writer has closed the container
/// meanwhile. The path is added to errors.
func openedStore(
  _ io: any BlockIO, from origin: Opening? = nil, mode: ContainerMode, options: ContainerOptions,
  salvaged: SalvagedCatalog? = nil, rootKey: (SuperblockSlot, KeyPool) throws -> SecretKey
) throws -> OpenedStore {
  func open() throws -> OpenedStore {
    let files = OpenFiles(byteCountMax: options.writeCacheByteCount)
    let observers = ChangeObservers()
    let opening = Opening(from: origin)
    do {
      let store = try Store(
        io: io, opening: opening, mode: mode, options: options, salvaged: salvaged, openRuns: files,
        observers: observers, rootKey: rootKey)
      return OpenedStore(store: store, files: files, observers: observers)
    } catch {
      if !opening.isAttached { Openings.shared.remove(opening) }
      // Without keys everything looks like damage.
      throw opening.isSealed ? opening.closed : error
    }
  }
  do {
    for _ in 0..<5 where mode == .readOnly {
      do { return try open() } catch ContainerError.rolledBack {
        // A writer, which is another process, may have come and gone since the superblock was read.
        usleep(10_000)
      }
    }
    return try open()
  } catch let failure as IOFailure {
    throw ContainerError.from(failure).with(path: io.place)
  } catch let error as ContainerError {
    if [.notAContainer, .superblockTorn].contains(error.code), (try? Destruction.isBegun(io)) == true {
      throw ContainerError(.notAContainer, path: io.place, detail: "it was destroyed")
    }
    throw error.with(path: io.place)
  }
}

/// The mirror has the container's id and mode, and none of its keys and names.
extension Container: CustomReflectable {
  public var customMirror: Mirror { Mirror(self, children: ["id": id, "mode": mode]) }
}
