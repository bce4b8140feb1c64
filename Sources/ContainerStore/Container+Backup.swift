import EncryptedFile
import SodiumPrimitives

/// What a backup holds.
public struct BackupReceipt: Sendable {
  /// The last commit in it.
  public var commit: UInt64
  public var fileCount: Int
  /// Bytes that were copied, still encrypted.
  public var byteCount: UInt64
}

extension Container {
  private static let pieceByteCount = 1 << 20
  private static let pageByteCount = 4096

  /// Copies the container, encrypted as it is, to a new directory, where the same keys open it. Works while it is in use, here or in
  /// another process, and holds the state of the moment in which it began. Reads nothing of what is stored: ``verify(control:)`` tells
  /// whether that is whole.
  ///
  /// What a backup that was killed has left at `path` is replaced. Throws `alreadyExists` when there is something else, `locked`
  /// while another backup is made there, `diskFull`, `cancelled`; then nothing is left there.
  @discardableResult
  public func backup(to path: String, control: BulkControl = BulkControl()) throws -> BackupReceipt {
    if mode == .readWrite {
      let snapshot = try snapshot()
      defer { try? snapshot.close() }
      return try snapshot.backup(to: path, control: control)
    }
    try requireOpen()
    let target = PosixBlockIO(path)
    // Held until all is there, so that nobody takes the place for one where a creation ended too early.
    let lock = try namingPath(path) { try Self.takePlace(target) }
    defer { lock.unlock(.writer) }
    do {
      return try namingPath(path) {
        let receipt = try copyEverything(to: target, control: control)
        try lock.truncate(to: 0)
        return receipt
      }
    } catch {
      Self.abandon(target)
      throw error
    }
  }

  /// Removes an unfinished backup with its lock, which the caller holds.
  private static func abandon(_ target: PosixBlockIO) {
    removeParts(of: target)
    try? target.remove("lock")
    try? target.removeDirectory("")
  }

  /// What the lock file of a backup says while it is made.
  private static let mark = Array("unfinished backup\n".utf8)

  /// Makes the directory, or takes over one in which a backup ended too early, and locks it.
  private static func takePlace(_ target: PosixBlockIO) throws -> any BlockFile {
    let lock: any BlockFile
    do throws(IOFailure) {
      try target.createDirectory("")
      do throws(IOFailure) {
        lock = try target.open("lock", .createNew)
      } catch {
        // Not empty when somebody else was faster: then it stays.
        try? target.removeDirectory("")
        throw error
      }
    } catch {
      guard error.errno == existingFile else { throw ContainerError.from(error) }
      return try takeOver(target)
    }
    guard try lock.tryLock(.writer, exclusive: true) else {
      throw ContainerError(.alreadyExists, path: target.place)
    }
    do {
      try lock.write(mark, at: 0)
      try lock.synchronize()
    } catch {
      abandon(target)
      throw error
    }
    return lock
  }

  /// Locks a directory with nothing in it but an unfinished backup, and removes that.
  private static func takeOver(_ target: PosixBlockIO) throws -> any BlockFile {
    func isUnfinished() throws -> Bool {
      let known = directories + ["lock", Superblock.unfinishedName]
      let names = Set(try target.fileNames(in: ""))
      return try names.contains("lock") && names.isSubset(of: known)
        && target.open("lock", .read).read(mark.count + 1, at: 0) == mark
    }
    let refusal = ContainerError(.alreadyExists, path: target.place)
    guard (try? isUnfinished()) == true else { throw refusal }
    let lock = try ContainerLock.take(target, mode: .readWrite)
    // Somebody else may have finished it meanwhile.
    guard try isUnfinished() else { throw refusal }
    removeParts(of: target)
    guard try target.fileNames(in: "") == ["lock"] else { throw refusal }
    return lock
  }

  private func copyEverything(to target: PosixBlockIO, control: BulkControl) throws -> BackupReceipt {
    let slabCounters = core.withLock { $0.slabCounters }
    let (commit, journalEnd) = flushing.withLock { state in (state.commit, state.predecessor) }
    // The pin keeps what these names stand for, however much the owner changes meanwhile.
    var files: [(name: String, byteCount: UInt64?)] = try withSuperblock { _, body, _ in
      let tables = body.completeGeneration.tables.map { CopiedFile.names($0.id, in: .catalog) }
      let journals = try journalsInUse(body).map { CopiedFile.names($0, in: .journal) }
      return (tables + journals).joined().sorted().map { ($0, nil) }
    }
    for name in journalEnd.map({ CopiedFile.names($0.id, in: .journal) }) ?? [] {
      // What was written to it since is later than the state that is copied.
      guard let i = files.firstIndex(where: { $0.name == name }) else { continue }
      files[i].byteCount = journalEnd!.end.offset
    }
    // Of two copies one may be missing, here as there.
    try files.removeAll { try io.openIfThere($0.name, .read) == nil }
    files += slabCounters.sorted { $0.key < $1.key }.map { (SlabStore.name($0.key), $0.value.end) }
    let sizes = try files.map { file in try file.byteCount ?? io.open(file.name, .read).size() }
    let total = sizes.reduce(0, +)
    for directory in Self.directories { try target.createDirectory(directory) }
    let began = Clock.monotonicNanoseconds()
    var done: UInt64 = 0
    for (i, file) in files.enumerated() {
      let isSlab = file.name.hasPrefix("slab/")
      try copy(file.name, byteCount: sizes[i], to: target, keepingHoles: isSlab, control: control)
      done += sizes[i]
      control.progress?(
        BulkProgress(
          bytesDone: done, byteCount: total, filesDone: i + 1, fileCount: files.count,
          seconds: Double(Clock.monotonicNanoseconds() - began) / 1e9))
    }
    let superblock = try closedSuperblock(at: journalEnd)
    if superblock.isChanged, let end = journalEnd?.end.offset {
      // A clean superblock promises both copies of the journal up to the known end.
      let uneven = try withCheckingLoader { try $0.load().unevenRecords }
      try Recovery.level(target, uneven.filter { $0.range.upperBound <= end })
    }
    for directory in Self.directories { try target.synchronizeDirectory(directory) }
    try Superblock.writeFirst(superblock.bytes, to: target)
    return BackupReceipt(commit: commit, fileCount: files.count, byteCount: total)
  }

  /// The superblock that closing the container would write, with `end` as the end of its journal. Unchanged when the container was
  /// closed cleanly.
  private func closedSuperblock(
    at end: JournalHeader.Predecessor?
  ) throws -> (bytes: [UInt8], isChanged: Bool) {
    try withSuperblock { slot, body, rootKey in
      guard !body.isClean, let end else { return (slot.bytes, false) }
      body.isClean = true
      body.journal = SuperblockBody.Journal(id: end.id, generation: end.generation, knownEnd: end.end)
      let closed = try SuperblockSlot.make(
        containerID: id, sequence: slot.sequence + 1, keySlots: slot.keySlots, body: body, rootKey: rootKey,
        cipher: SecretStreamCipher(options.cipher))
      return (closed.bytes, true)
    }
  }

  private func copy(
    _ name: String, byteCount: UInt64, to target: PosixBlockIO, keepingHoles: Bool, control: BulkControl
  ) throws {
    let source = try io.open(name, .read)
    let copy = try target.open(name, .createNew)
    var offset: UInt64 = 0
    while offset < byteCount {
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
      let piece = try source.read(Int(min(byteCount - offset, UInt64(Self.pieceByteCount))), at: offset)
      // What is missing is damage of the files whose it is, here as there.
      if piece.isEmpty { break }
      if keepingHoles {
        try writeWithoutZeros(piece, at: offset, to: copy)
      } else {
        try copy.write(piece, at: offset)
      }
      offset += UInt64(piece.count)
    }
    if keepingHoles, try copy.size() < offset { try copy.truncate(to: offset) }
    try copy.synchronize()
  }

  /// Pages of zeros are holes: sealed bytes are none.
  private func writeWithoutZeros(_ piece: [UInt8], at offset: UInt64, to file: any BlockFile)
    throws(IOFailure)
  {
    var begin = 0
    var position = 0
    while position < piece.count {
      let end = min(position + Self.pageByteCount, piece.count)
      if piece[position..<end].allSatisfy({ $0 == 0 }) {
        if begin < position { try file.write(Array(piece[begin..<position]), at: offset + UInt64(begin)) }
        begin = end
      }
      position = end
    }
    if begin < piece.count { try file.write(Array(piece[begin...]), at: offset + UInt64(begin)) }
  }
}
