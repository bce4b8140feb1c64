import EncryptedFile
import SodiumPrimitives

/// Operations on whole files of the catalog: loads journals and tables, writes tables, and removes
/// files that no state needs.
struct CatalogFiles: Sendable {
  let io: any BlockIO
  let container: Identifier
  let keys: Keyring
  let ciphers: CipherPool
  let cache: BlockCache

  /// Lets go of what was opened. A block wipes itself with its last reference.
  func forgetAll() {
    cache.close()
    ciphers.removeAll()
  }

  /// Names of the folders of a container.
  static let directories = ["journal", "catalog", CopiedFile.copyFolder, "slab"]

  /// Refuses a folder that leads elsewhere, even where the second copies of its files would suffice.
  /// One that is damaged itself is no more than missing files.
  static func requireDirectories(of io: any BlockIO) throws(IOFailure) {
    for directory in directories {
      do throws(IOFailure) { try io.requireDirectory(directory) } catch {
        guard error.isOfFile, !absentFile.contains(error.errno) else { throw error }
      }
    }
  }

  /// A loader for the catalog that a superblock's body names.
  func loader(
    _ body: SuperblockBody, log: FindingLog = FindingLog(), writerIsAlive: Bool = false
  ) -> CatalogLoader {
    CatalogLoader(
      io: io, container: container, body: body, keys: keys, ciphers: ciphers, cache: cache, log: log,
      writerIsAlive: writerIsAlive)
  }

  /// A loader that reads both copies of every record and block, and continues after damage.
  func checkingLoader(_ body: SuperblockBody, log: FindingLog, writerIsAlive: Bool) -> CatalogLoader {
    var loader = loader(body, log: log, writerIsAlive: writerIsAlive)
    loader.readsBothCopies = true
    loader.salvages = true
    return loader
  }

  /// The journals that the generations need.
  func journalsInUse(_ body: SuperblockBody) throws -> Set<Identifier> { Set(try loader(body).journals()) }

  // MARK: Tables

  /// Writes changes to a new table, durably, merged with the newest tables as far as they are not
  /// much larger. Returns the new table and those that were not merged into it, newest first.
  func writeTable(
    _ changes: ChangeMap, over tables: [TableFile], namedIn update: UInt64, epoch: UInt32, mergingAll: Bool,
    log: FindingLog
  ) throws -> [TableFile] {
    let mergedCount =
      mergingAll ? tables.count : Self.mergedCount(changes.byteCount, over: tables.map(\.table))
    let keying = Generation.Table.Keying(epoch: epoch, secret: Random.bytes(32))
    let id = Identifier.ofFile(namedIn: update)
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
          to: file, place: Table.Place(container: container, table: id), key: key.key, keying: keying,
          cipher: cipher
        ) {
          // Below the oldest table there is nothing that a tombstone could hide.
          try isOldest ? records.nextLive() : records.next()
        }
      }
      try file.synchronizeNew()
      func opened(_ log: FindingLog) throws -> TableFile {
        try TableFile(
          written, io: io, container: container, key: key, ciphers: ciphers, cache: cache, log: log)
      }
      // The table is verified first: its source tables and journals are removed once the superblock
      // names it. Nothing of the container is damaged until then.
      let check = try opened(FindingLog()).check(isOldest: isOldest)
      guard check.isWhole else {
        if let refusal = check.refusal { throw refusal }
        throw ContainerError(.ioFailed, detail: "a table that was just written cannot be read back")
      }
      let table = try opened(log)
      if let loss = table.loss { throw loss }
      return [table] + tables.dropFirst(mergedCount)
    } catch {
      CopiedFile.remove(io, id, in: .catalog)
      throw error
    }
  }

  /// The number of tables to merge with `byteCount` bytes of changes. Tables grow by a factor of
  /// two or more from one to the next, so a record is written a few times in its life, and a lookup
  /// reads few tables.
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

  /// The bytes that journals and tables take, in both copies.
  func takenByteCount() throws(IOFailure) -> UInt64 {
    var byteCount: UInt64 = 0
    for directory in ["catalog", "journal", CopiedFile.copyFolder] {
      for name in try io.readableFileNames(in: directory) {
        byteCount += (try? io.open(directory + "/" + name, .read).size()) ?? 0
      }
    }
    return byteCount
  }

  // MARK: Garbage

  /// Removes journals, tables and slabs that the superblock's state does not need. A file that
  /// cannot be removed stays as garbage, which is no failure. Throws when the journals cannot be
  /// read.
  func removeUnreferenced(_ body: SuperblockBody, slabs: SlabStore) throws {
    let journals = try journalsInUse(body)
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
  }

  /// Removes those files of a container's folders that `mayGo` names, and folders that are empty then. What cannot be removed stays.
  static func removeDirectories(
    of io: any BlockIO, where mayGo: (_ name: String, _ directory: String) -> Bool
  ) {
    for directory in directories {
      for name in (try? io.fileNames(in: directory)) ?? [] where mayGo(name, directory) {
        try? io.remove(directory + "/" + name)
      }
      try? io.removeDirectory(directory)
    }
  }

  /// Whether `name` is of the form that a container gives to its files in `directory`, so that
  /// ``removeUnreferenced(_:slabs:)`` may remove the file.
  static func mayRemove(_ name: String, in directory: String) -> Bool {
    directory == "slab" ? SlabStore.number(name) != nil : Identifier(hex: name) != nil
  }
}

extension ChangeMap {
  /// The approximate number of bytes that the changes take in a table.
  var byteCount: UInt64 {
    var byteCount: UInt64 = 0
    visit { byteCount += UInt64($0.bytes.count + ($1?.count ?? 0) + 7) }
    return byteCount
  }
}
