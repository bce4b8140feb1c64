import EncryptedFile
import SodiumPrimitives

extension Store {
  /// The container's path.
  var place: String { io.place }

  /// Calls `body` with the catalog as it is now. The snapshot, and the segments that it names, do
  /// not change while `body` runs. Data that open files have not stored yet is not in the snapshot.
  /// With `settled`, the counters of slabs are those of the same moment.
  func withSnapshot<R>(settled: Bool = false, _ body: (CatalogSnapshot) throws -> R) throws -> R {
    let (snapshot, ticket) = try catalogState.withLock { catalog in
      guard !keyPool.isShut, !catalog.isClosed else { throw closed }
      if settled { catalog.settleCounters(nextSlab: slabs.nextSlab) }
      return (catalog.snapshot, catalog.freeable.beginReading())
    }
    defer {
      catalogState.withLock { _ = $0.freeable.endReading(ticket) }
      freeWhatNobodyReads()
    }
    return try reportingIO { try body(snapshot) }
  }

  /// Keeps stored runs that are live now from being freed while `body` runs.
  func withRunsKept<R>(_ body: () throws -> R) throws -> R {
    let ticket = try catalogState.withLock { catalog in
      guard !keyPool.isShut, !catalog.isClosed else { throw closed }
      return catalog.freeable.beginReading()
    }
    defer {
      let mayFree = catalogState.withLock { catalog in
        let wasLast = catalog.freeable.endReading(ticket)
        let mayFree = wasLast && !catalog.freeable.isEmpty && !catalog.freeable.isScheduled
        if mayFree { catalog.freeable.isScheduled = true }
        return mayFree
      }
      if mayFree { freeSoon() }
    }
    return try body()
  }

  /// Calls `body` with the catalog and the number of its last change while no transaction runs. For
  /// short work only: every change waits for it. Throws `closed`.
  func withCurrentState<R>(_ body: (CatalogSnapshot, _ changeNumber: UInt64) throws -> R) throws -> R {
    try catalogState.withLock { catalog in
      guard !keyPool.isShut, !catalog.isClosed else { throw closed }
      return try body(catalog.snapshot, catalog.changeNumber)
    }
  }

  /// Whether the reserve was given up for lack of space.
  var diskIsFull: Bool { catalogState.withLock { $0.diskIsFull } }

  /// Numbers of the catalog that are in no record.
  struct Usage {
    var slabCounters: [UInt32: SlabCounter]
    /// The last commit in the journal.
    var commit: UInt64
    var generation: UInt64
  }

  func usage() -> Usage {
    let (commit, generation) = commitLog.withLock { ($0.commit, $0.newestGeneration) }
    return catalogState.withLock {
      Usage(slabCounters: $0.slabCounters, commit: commit, generation: generation)
    }
  }

  /// The number of the last commit in the journal.
  var lastCommit: UInt64 { commitLog.withLock { $0.commit } }

  /// The number of ids that were given to files.
  var usedFileCount: UInt64 { catalogState.withLock { $0.counters.nextFile - 1 } }

  /// The end of the journal that a reader's state was read from; nil when all of it is in tables.
  var acceptedEnd: JournalHeader.Predecessor? { commitLog.withLock { $0.predecessor } }

  // MARK: Superblock

  /// A copy in another pool.
  func copyRootKey(in pool: KeyPool) throws -> SecretKey {
    var copy: SecretKey?
    try reportingIO {
      try commitLog.withLock { log in
        copy = try SecretKey(
          in: pool, else: { $0 },
          fill: { target throws(CryptoError) in
            try log.superblock.rootKey.withUnsafeBytes { target.copyMemory(from: $0) }
          })
      }
    }
    return copy!
  }

  /// Calls `body` with the slot in use, its opened body and the root key. Changes are not written.
  func withSuperblock<R>(_ body: (SuperblockSlot, inout SuperblockBody, borrowing SecretKey) throws -> R)
    throws -> R
  {
    try reportingIO {
      try commitLog.withLock { log in
        try log.superblock.withBody { opened in
          try body(log.superblock.slot, &opened, log.superblock.rootKey)
        }
      }
    }
  }

  func keyTable() throws -> KeyTable { try withSuperblock { slot, body, _ in KeyTable(slot, body) } }

  /// Calls `body` with a loader that reads both copies of every record and block. It continues
  /// after damage, which is added to ``log``.
  func withCheckingLoader<R>(_ body: (CatalogLoader) throws -> R) throws -> R {
    try withSuperblock { _, superblock, _ in
      let writerIsAlive = (try? lockFile.isLocked(.writer)) ?? false
      return try body(catalogFiles.checkingLoader(superblock, log: log, writerIsAlive: writerIsAlive))
    }
  }

  func hasKey(ofEpoch epoch: UInt32) -> Bool { keyring.hasEpoch(epoch) }

  func fileKey(_ id: UInt64, _ inode: Inode) throws -> FileKey {
    try keyring.fileKey(id, epoch: inode.epoch, secret: inode.secret)
  }

  func fileKey(_ file: NewFile) throws -> FileKey {
    try keyring.fileKey(file.id, epoch: epoch, secret: file.secret)
  }

  // MARK: Errors

  /// Runs `body`. Adds the path to its errors, and reports damaged contents as `fileDamaged`.
  func namingPath<R>(_ path: String, _ body: () throws -> R) throws -> R {
    do { return try body() } catch { throw translated(error, path: path) }
  }

  func translated(_ error: any Error, path: String) -> any Error {
    // After closing, results of reads and writes are void, whatever failed.
    if !(error is ContainerError) || (error as? ContainerError)?.code == .closed, isClosed {
      return closed.with(path: path)
    }
    return ContainerError.ofFile(at: path, ContainerLock.replaced(self, error) ?? error)
  }

  /// Turns a failed system call into an error of the container. The caller adds the path, if it
  /// knows one.
  func reportingIO<R>(_ body: () throws -> R) throws -> R {
    do {
      return try body()
    } catch let failure as IOFailure {
      throw isClosed ? closed : ContainerLock.replaced(self, failure) ?? ContainerError.from(failure)
    } catch CryptoError.keysWiped {
      throw closed
    } catch SegmentError.crypto(.keysWiped) {
      throw closed
    }
  }
}
