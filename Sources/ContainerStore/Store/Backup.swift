import EncryptedFile
import SodiumPrimitives

/// A copy of a container, still encrypted, made from a store that is open for reading.
struct Backup {
  private static let pieceByteCount = 1 << 20
  private static let pageByteCount = 4096

  let store: Store

  /// See ``ContainerReading/backup(to:control:)``.
  func run(to path: String, control: BulkControl) throws -> BackupReceipt {
    try store.requireOpen()
    try store.io.directory?.identity?.requireOutside(path)
    let target = PosixBlockIO(path)
    // Held until the backup is complete, so that no process mistakes the directory for one in which
    // a creation ended too early.
    let lock = try store.namingPath(path) { try Self.takePlace(target) }
    defer { lock.unlock(.writer) }
    do {
      return try store.namingPath(path) {
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
    Creation.removeParts(of: target)
    try? target.remove(ContainerLock.name)
    try? target.removeDirectory("")
  }

  /// The contents of a backup's lock file while the backup is unfinished.
  private static let mark = Array("unfinished backup\n".utf8)

  /// Creates and locks the directory, or takes over one in which a backup ended too early.
  private static func takePlace(_ target: PosixBlockIO) throws -> any BlockFile {
    let lock: any BlockFile
    do throws(IOFailure) {
      try target.createDirectory("")
      do throws(IOFailure) {
        lock = try target.open(ContainerLock.name, .createNew)
      } catch {
        // A directory that is not empty stays: another process was faster.
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

  /// Locks a directory that holds nothing but an unfinished backup, and removes that backup.
  private static func takeOver(_ target: PosixBlockIO) throws -> any BlockFile {
    func isUnfinished() throws -> Bool {
      let known = CatalogFiles.directories + [ContainerLock.name, Superblock.unfinishedName]
      let names = Set(try target.fileNames(in: ""))
      // A backup that ended before its first file was made.
      if names.isEmpty {
        try target.open(ContainerLock.name, .createNew).write(mark, at: 0)
        return true
      }
      return try names.contains(ContainerLock.name) && names.isSubset(of: known)
        && target.open(ContainerLock.name, .read).read(mark.count + 1, at: 0) == mark
    }
    let refusal = ContainerError(.alreadyExists, path: target.place)
    guard (try? isUnfinished()) == true else { throw refusal }
    let lock = try ContainerLock.take(target, mode: .readWrite)
    // Another process may have finished the backup meanwhile.
    guard try isUnfinished() else { throw refusal }
    Creation.removeParts(of: target)
    guard try target.fileNames(in: "") == [ContainerLock.name] else { throw refusal }
    return lock
  }

  private func copyEverything(to target: PosixBlockIO, control: BulkControl) throws -> BackupReceipt {
    let usage = store.usage()
    let journalEnd = store.acceptedEnd
    // The pin keeps the files of these names, whatever the container's writer changes during the
    // copy.
    let copied: [[String]] = try store.withSuperblock { _, body, _ in
      let tables = body.completeGeneration.tables.map { CopiedFile.names($0.id, in: .catalog) }
      let journals = try store.catalogFiles.journalsInUse(body).map { CopiedFile.names($0, in: .journal) }
      return tables + journals
    }
    let ofEnd = journalEnd.map { CopiedFile.names($0.id, in: .journal) }
    // Later bytes of this journal belong to a later state than the one that is copied.
    let limited = copied.map { (names: $0, end: $0 == ofEnd ? journalEnd?.end.offset : nil) }
    let slabs = try slabs(usage.slabCounters).map { (names: [SlabStore.name($0.slab)], end: $0.end) }
    var files: [Source] = []
    // Records that are lost in the container are lost in the copy, too.
    var findings = store.log.findings.filter { [.tableDamaged, .unreadable].contains($0.kind) }
    for (names, end) in limited + slabs {
      let (sources, failure) = try sources(names, end: end)
      files += sources
      if sources.isEmpty, let failure {
        findings.append(Finding(.damage, .unreadable, "\(failure); it is left out"))
      }
    }
    let total = files.reduce(0) { $0 + $1.byteCount }
    for directory in CatalogFiles.directories { try target.createDirectory(directory) }
    let began = Clock.monotonicNanoseconds()
    var done: UInt64 = 0
    for (i, file) in files.enumerated() {
      let isSlab = file.name.hasPrefix("slab/")
      if let missing = try copy(file, to: target, keepingHoles: isSlab, control: control) {
        findings.append(
          Finding(
            .damage, .unreadable, "\(missing.failure); \(missing.byteCount) bytes are zeros in the copy"))
      }
      done += file.byteCount
      control.progress?(
        BulkProgress(
          bytesDone: done, byteCount: total, filesDone: i + 1, fileCount: files.count,
          seconds: Double(Clock.monotonicNanoseconds() - began) / 1e9))
    }
    let superblock = try closedSuperblock(at: journalEnd)
    if superblock.isChanged, let end = journalEnd?.end.offset {
      // A clean superblock promises both copies of the journal up to the known end.
      let uneven = try store.withCheckingLoader { try $0.load().unevenRecords }
      try Recovery.level(target, uneven.filter { $0.range.upperBound <= end })
    }
    for directory in CatalogFiles.directories { try target.synchronizeDirectory(directory) }
    try Superblock.writeFirst(superblock.bytes, to: target)
    return BackupReceipt(
      commit: usage.commit, fileCount: files.count, byteCount: total, findings: findings)
  }

  /// The slabs with their ends; nil, the file's, where the counters were lost.
  private func slabs(_ counters: [UInt32: SlabCounter]) throws -> [(slab: UInt32, end: UInt64?)] {
    let others =
      store.log.tellsOfLostRecords
      ? try store.io.readableFileNames(in: "slab").compactMap(SlabStore.number) : []
    return Set(counters.keys).union(others).sorted().map { ($0, counters[$0]?.end) }
  }

  /// The superblock that a clean close would write, with `end` as the end of the journal. It is
  /// unchanged when the container was closed cleanly. Its number is that of the container's, so that
  /// over the container it is older than what the container names next.
  private func closedSuperblock(
    at end: JournalHeader.Predecessor?
  ) throws -> (bytes: [UInt8], isChanged: Bool) {
    try store.withSuperblock { slot, body, rootKey in
      guard !body.isClean, let end else { return (slot.bytes, false) }
      body.isClean = true
      body.journal = SuperblockBody.Journal(id: end.id, generation: end.generation, knownEnd: end.end)
      let closed = try SuperblockSlot.make(
        containerID: store.id, sequence: slot.sequence, keySlots: slot.keySlots, body: body,
        rootKey: rootKey)
      return (closed.bytes, true)
    }
  }

  /// A file to be copied, and those that have its bytes.
  private struct Source {
    var name: String
    var files: [any BlockFile]
    var byteCount: UInt64

    /// `count` bytes of the first file that the system reads, or fewer at its end.
    func read(_ count: Int, at offset: UInt64) throws(IOFailure) -> [UInt8] {
      var refusal: IOFailure?
      for file in files {
        do throws(IOFailure) { return try file.read(count, at: offset) } catch {
          guard error.isOfFile else { throw error }
          refusal = refusal ?? error
        }
      }
      if let refusal { throw refusal }
      return []
    }
  }

  /// The copies of one file, as far as `end` where it is known: bytes that the system does not read in one are taken from another, and so
  /// is all of one that it does not open. None, and why, when it opens none.
  private func sources(
    _ names: [String], end: UInt64?
  ) throws(IOFailure) -> (sources: [Source], failure: IOFailure?) {
    var opened: [(name: String, file: any BlockFile)] = []
    var byteCount: UInt64 = 0
    var failure: IOFailure?
    for name in names {
      do throws(IOFailure) {
        let file = try store.io.open(name, .read)
        byteCount = max(byteCount, try file.size())
        opened.append((name, file))
      } catch {
        guard error.isOfFile else { throw error }
        failure = failure ?? error
      }
    }
    guard !opened.isEmpty else { return ([], failure) }
    let sources = names.map { name in
      let own = opened.filter { $0.name == name } + opened.filter { $0.name != name }
      return Source(name: name, files: own.map(\.file), byteCount: end ?? byteCount)
    }
    return (sources, failure)
  }

  /// Returns the number of bytes that the system does not read, if there are any, and why. They are zeros in the copy.
  private func copy(
    _ source: Source, to target: PosixBlockIO, keepingHoles: Bool, control: BulkControl
  ) throws -> (byteCount: Int, failure: IOFailure)? {
    let copy = try target.open(source.name, .createNew)
    var offset: UInt64 = 0
    var missing: (byteCount: Int, failure: IOFailure)?
    while offset < source.byteCount {
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
      var piece: [UInt8]
      let count = Int(min(source.byteCount - offset, UInt64(Self.pieceByteCount)))
      do throws(IOFailure) { piece = try source.read(count, at: offset) } catch {
        guard error.isOfFile else { throw error }
        piece = []
        for begin in stride(from: 0, to: count, by: Self.pageByteCount) {
          let page = min(Self.pageByteCount, count - begin)
          do throws(IOFailure) { piece += try source.read(page, at: offset + UInt64(begin)) } catch {
            guard error.isOfFile else { throw error }
            missing = ((missing?.byteCount ?? 0) + page, missing?.failure ?? error)
          }
          piece += [UInt8](repeating: 0, count: begin + page - piece.count)
        }
      }
      // Missing bytes are damage of the files they belong to, in the backup as in the container.
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
    return missing
  }

  /// Writes a piece without its pages of zeros: they are holes, since sealed bytes are not zeros.
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
