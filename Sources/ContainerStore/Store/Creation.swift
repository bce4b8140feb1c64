import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The creation of a container in a new directory.
enum Creation {
  /// See ``Container/create(at:credential:label:options:)``.
  static func run(
    io: any BlockIO, credential: borrowing Credential, label: String?, options: ContainerOptions
  ) throws {
    try KeySlot.check(credential, parameters: options.passwordHash)
    let label = try KeyTable.bytes(label)
    do { try Destruction.goOn(io) } catch let failure as IOFailure {
      throw ContainerError.from(failure).with(path: io.place)
    }
    var madeDirectory = false
    do {
      try io.createDirectory("")
      madeDirectory = true
    } catch  where error.errno == existingFile {
      try requireUnfinished(io)
    } catch {
      if error.errno == missingFile {
        throw ContainerError(
          .noSuchFile, path: io.place, detail: "the directory that is to hold the container is missing")
      }
      throw ContainerError.from(error)
    }
    do {
      let lock: any BlockFile
      do {
        lock = try ContainerLock.take(io, mode: .readWrite)
      } catch {
        if madeDirectory { try? io.removeDirectory("") }
        throw error
      }
      defer { lock.unlock(.writer) }
      do {
        // Another process may have finished the creation meanwhile.
        try requireUnfinished(io)
        removeParts(of: io)
        do {
          try layDown(io: io, credential: credential, label: label, options: options)
        } catch {
          removeParts(of: io)
          throw error
        }
      } catch {
        // The lock stays in a directory that this call did not make: another process may be waiting
        // for it.
        if madeDirectory, (try? io.fileNames(in: "")) == [ContainerLock.name] {
          try? io.remove(ContainerLock.name)
          try? io.removeDirectory("")
        }
        throw error
      }
    } catch {
      throw (error as? IOFailure).map { ContainerError.from($0).with(path: io.place) } ?? error
    }
  }

  /// Throws `alreadyExists` where a creation would. A destruction that was begun is no obstacle: the creation finishes it first.
  static func requirePossible(_ io: any BlockIO) throws(ContainerError) {
    if (try? Destruction.isBegun(io)) == true { return }
    try requireUnfinished(io)
  }

  static func requireUnfinished(_ io: any BlockIO) throws(ContainerError) {
    do throws(IOFailure) {
      if try isUnfinished(io) { return }
    } catch {
      // A directory that cannot be read is not reported as one that has contents.
      guard error.errno == ENOTDIR else { throw ContainerError.from(error).with(path: io.place) }
    }
    throw ContainerError(.alreadyExists, path: io.place)
  }

  /// Whether a directory has only what a creation makes before the superblock: one table in two
  /// copies, and no journal or slab. Such a container has never had contents.
  private static func isUnfinished(_ io: any BlockIO) throws(IOFailure) -> Bool {
    let names = try io.fileNames(in: "")
    guard Set(names).isSubset(of: CatalogFiles.directories + [ContainerLock.name, Superblock.unfinishedName])
    else {
      return false
    }
    for directory in ["journal", "slab"] where try !io.fileNames(in: directory).isEmpty { return false }
    for directory in ["catalog", CopiedFile.copyFolder] where try io.fileNames(in: directory).count > 1 {
      return false
    }
    return true
  }

  /// Removes the files and directories of an unfinished creation or backup, except for the lock.
  /// The superblock is removed first, so that a crash in between leaves no container with missing
  /// parts.
  static func removeParts(of io: any BlockIO) {
    for name in [Superblock.unfinishedName, Superblock.name] { try? io.remove(name) }
    CatalogFiles.removeDirectories(of: io) { _, _ in true }
  }

  private static func layDown(
    io: any BlockIO, credential: borrowing Credential, label: [UInt8], options: ContainerOptions
  ) throws {
    let pool = KeyPool()
    defer { pool.shut() }
    let containerID = Identifier.random()
    let rootKey = try SecretKey.random(in: pool)
    let now = Clock.wallNanoseconds()
    let tableID = Identifier.ofFile(namedIn: 1)
    let keying = Generation.Table.Keying(epoch: 1, secret: Random.bytes(32))
    var generation = Generation(
      number: 1, epoch: 1, state: .complete, secret: Random.bytes(32), commit: 0, tables: [])
    var body = try SuperblockBody(
      created: now, epoch: SuperblockBody.Epoch(number: 1, key: SharedKey(SecretKey.random(in: pool))),
      generation: generation)
    defer { body.wipeSecrets() }
    let keys = try Keyring(container: containerID, body: body)
    for directory in CatalogFiles.directories { try io.createDirectory(directory) }
    let noSecret = [UInt8](repeating: 0, count: Inode.secretByteCount)
    let root = Inode(kind: .directory, permissions: 0o700, now: now, epoch: 1, secret: noSecret)
    var records: [(key: CatalogKey, value: [UInt8]?)] = [
      (.state, CatalogCounters(nextFile: rootFileID + 1, nextSlab: 0).encoded),
      (.inode(rootFileID), root.encoded),
    ]
    let file = try CopiedFile.create(io, tableID, in: .catalog)
    generation.tables = [
      try Table.write(
        to: file, place: Table.Place(container: containerID, table: tableID),
        key: keys.tableKey(tableID, keying).key, keying: keying,
        cipher: SecretStreamCipher(.libsodium, in: pool)
      ) { records.isEmpty ? nil : records.removeFirst() }
    ]
    body.generations = [generation]
    body.keyLabels[0] = label
    try file.synchronizeNew()
    let slot = try KeySlot.make(
      credential, parameters: options.passwordHash, rootKey: rootKey, containerID: containerID
    )
    let superblock = try SuperblockSlot.make(
      containerID: containerID, sequence: 1,
      keySlots: [slot] + [KeySlot?](repeating: nil, count: SuperblockSlot.keySlotCount - 1), body: body,
      rootKey: rootKey)
    try Superblock.writeFirst(superblock.bytes, to: io)
  }
}
