import EncryptedFile
import SodiumPrimitives

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
  private let observers: ChangeObservers

  private init(_ opened: OpenedStore) {
    writeBack = WriteBack(store: opened.store, files: opened.files)
    reader = ContainerReader(store: opened.store, writeBack: writeBack)
    messages = Messages(opened.store)
    observers = opened.observers
  }

  // MARK: Create

  /// Creates a container in a new directory and opens it. An empty directory, or one with an
  /// unfinished creation, is taken over. Throws `alreadyExists` if there is anything else at
  /// `path`, `locked` while another process creates a container there, and `invalidArgument` for an
  /// empty passphrase or impossible costs.
  public static func create(
    at path: String, credential: borrowing Credential, options: Options = Options()
  ) throws -> Container {
    try create(io: PosixBlockIO(path), credential: credential, options: options)
  }

  package static func create(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options()
  ) throws -> Container {
    try Creation.run(io: io, credential: credential, options: options)
    return try open(io: io, credential: credential, options: options)
  }

  /// Throws the error that `create` throws if it cannot take over the item at `path`.
  package static func requireUnfinished(at path: String) throws(ContainerError) {
    try Creation.requireUnfinished(PosixBlockIO(path))
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
  public static func open(
    at path: String, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options()
  ) throws -> Container {
    try open(io: PosixBlockIO(path), credential: credential, mode: mode, options: options)
  }

  package static func open(
    io: any BlockIO, credential: borrowing Credential, mode: Mode = .readWrite, options: Options = Options()
  ) throws -> Container {
    try open(io, credential, mode, options, with: nil)
  }

  /// With a catalog in the place of that on the disk.
  static func open(
    _ io: any BlockIO, _ credential: borrowing Credential, _ mode: Mode, _ options: Options,
    with salvaged: SalvagedCatalog?
  ) throws -> Container {
    Container(
      try openedStore(io, mode: mode, options: options, salvaged: salvaged) { slot, cipher in
        try Superblock.rootKey(slot, credential: credential, options: options, cipher: cipher)
      })
  }

  /// A read-only view of the current state that does not change while the container does, for
  /// instance for a backup.
  public func snapshot() throws -> ContainerSnapshot { try reader.snapshot() }

  // MARK: Close

  /// Makes everything durable (except with ``ContainerDurability/none``), records that the
  /// container was closed cleanly, and releases the lock. Every later call throws `closed`, and so
  /// do changes in progress in other threads; reads in progress are waited for. Throws if changes
  /// since the last durable moment could not be written. A second call does nothing.
  public func close() throws {
    defer { observers.finish() }
    writeBack.files.close()
    let written = Result { () throws in
      if let failure = try writeBack.run().values.first { throw failure }
    }
    try store.close()
    // Thrown after the container is closed in order: committed changes are safe.
    try written.get()
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
  _ io: any BlockIO, mode: ContainerMode, options: ContainerOptions, salvaged: SalvagedCatalog? = nil,
  rootKey: (SuperblockSlot, SecretStreamCipher) throws -> SecretBytes
) throws -> OpenedStore {
  func open() throws -> OpenedStore {
    let files = OpenFiles(byteCountMax: options.writeCacheByteCount)
    let observers = ChangeObservers()
    let store = try Store(
      io: io, mode: mode, options: options, salvaged: salvaged, openRuns: files, observers: observers,
      rootKey: rootKey)
    return OpenedStore(store: store, files: files, observers: observers)
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
    throw error.with(path: io.place)
  }
}

/// The mirror has the container's id and mode, and none of its keys and names.
extension Container: CustomReflectable {
  public var customMirror: Mirror { Mirror(self, children: ["id": id, "mode": mode]) }
}
