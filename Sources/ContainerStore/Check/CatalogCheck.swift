import EncryptedFile

/// Checks that a catalog is consistent: every name leads to a file, every file has its names, no
/// two runs share a byte, and the counters of the slabs add up. Takes some 24 bytes of memory per
/// file.
struct CatalogCheck {
  private let records: CatalogSnapshot
  private(set) var findings: [Finding] = []
  /// Problems of single files, by file id.
  private(set) var damagedFiles: [UInt64: String] = [:]
  private(set) var fileCount = 0
  private(set) var byteCount: UInt64 = 0
  /// Targets of the directory entries: file id and kind, sorted after ``checkNames()``.
  private var links: [UInt64] = []
  private var runs: [Run] = []
  private var lastFile: UInt64 = 0

  private struct Run {
    var slab: UInt32
    var offset: UInt32
    var byteCount: UInt32
  }

  init(_ records: CatalogSnapshot) { self.records = records }

  private mutating func report(_ detail: String) { findings.addInconsistency(detail) }

  private static func link(_ file: UInt64, _ kind: FileKind) -> UInt64 { file << 2 | UInt64(kind.rawValue) }

  /// Checks that every directory is connected to the root and that every name is in a directory.
  mutating func checkNames() throws {
    var parentOf: [UInt64: UInt64] = [:]
    var parents: Set<UInt64> = []
    links = [Self.link(rootFileID, .directory)]
    var problems: [String] = []
    var links = links
    try records.scan(.all(.entry)) { key, value in
      guard let parent = key.number(at: 1), FileName(bytes: Array(key.bytes.dropFirst(9))) != nil,
        let entry = try? DirectoryEntry(value), entry.file < 1 << 62
      else {
        problems.append("a directory entry that cannot be")
        return
      }
      links.append(Self.link(entry.file, entry.kind))
      parents.insert(parent)
      if entry.kind == .directory, parentOf.updateValue(parent, forKey: entry.file) != nil {
        problems.append("a directory is reached twice")
      }
    }
    links.sort()
    self.links = links
    for problem in problems { report(problem) }
    var hangsTogether: Set<UInt64> = [rootFileID]
    for directory in Set(parentOf.keys).union(parents).sorted() {
      var way: [UInt64] = []
      var next = directory
      while !hangsTogether.contains(next), let parent = parentOf[next], way.count <= parentOf.count {
        way.append(next)
        next = parent
      }
      if hangsTogether.contains(next) {
        hangsTogether.formUnion(way)
      } else {
        report("a directory entry that leads nowhere, or comes from nowhere (directory \(directory))")
      }
    }
  }

  mutating func countFiles() throws {
    var count = 0
    var bytes: UInt64 = 0
    try records.scan(.all(.inode)) { _, value in
      guard let inode = try? Inode(value), inode.kind == .file else { return }
      count += 1
      bytes = bytes.addingReportingOverflow(inode.size).overflow ? .max : bytes + inode.size
    }
    fileCount = count
    byteCount = bytes
  }

  /// Checks all files, and calls `body` for every one whose extents are valid, in order of ids.
  mutating func checkFiles(_ body: (StoredFile) throws -> Void) throws {
    var inodes = try records.cursor(from: .all(.inode))
    var extents = try records.cursor(from: .all(.extent))
    var extent = try extents.nextLive()
    var attributes = try records.cursor(from: .all(.attribute))
    var attribute = try attributes.nextLive()
    var link = 0
    while let (key, value) = try inodes.nextLive(), key.kind == .inode {
      guard let id = key.number(at: 1), key.bytes.count == 9, let inode = try? Inode(value) else {
        report("an inode that cannot be")
        continue
      }
      lastFile = id
      while link < links.count, links[link] >> 2 < id {
        report("a directory entry that leads nowhere (file \(links[link] >> 2))")
        link += 1
      }
      var names: UInt32 = 0
      while link < links.count, links[link] >> 2 == id {
        if links[link] & 3 != UInt64(inode.kind.rawValue) {
          report("a directory entry of another kind than its file")
        }
        names += 1
        link += 1
      }
      if names != inode.linkCount {
        report("file \(id) has \(names) names and counts \(inode.linkCount)")
      } else if inode.kind == .directory, names != 1 {
        report("directory \(id) has \(names) names")
      }
      while let (attributeKey, _) = attribute, attributeKey.kind == .attribute {
        let owner = attributeKey.number(at: 1)
        if let owner, owner > id { break }
        check(attributeKey, isOwned: owner == id)
        attribute = try attributes.nextLive()
      }
      var further: [Extent] = []
      while let (extentKey, extentValue) = extent, extentKey.kind == .extent {
        guard let owner = extentKey.number(at: 1), let read = try? Extent(key: extentKey, value: extentValue)
        else {
          report("an extent that cannot be")
          extent = try extents.nextLive()
          continue
        }
        guard owner <= id else { break }
        if owner < id || inode.firstExtent.map({ read.start <= $0.start }) ?? true {
          report("file \(owner) has an extent that no inode leads to")
        } else {
          further.append(read)
        }
        extent = try extents.nextLive()
      }
      guard inode.kind == .file else { continue }
      let all: [Extent]
      do throws(SegmentError) {
        all = try EncryptedFileReader.checked(
          (inode.firstExtent.map { [$0] } ?? []) + further, size: inode.size)
      } catch {
        damagedFiles[id] = error.description
        continue
      }
      add(all)
      try body(StoredFile(id: id, inode: inode, extents: all))
    }
    while link < links.count {
      report("a directory entry that leads nowhere (file \(links[link] >> 2))")
      link += 1
    }
    while let (key, _) = extent, key.kind == .extent {
      report("an extent that no inode leads to")
      extent = try extents.nextLive()
    }
    while let (key, _) = attribute, key.kind == .attribute {
      check(key, isOwned: false)
      attribute = try attributes.nextLive()
    }
  }

  /// Adds live runs that belong to no file.
  mutating func add(_ extents: [Extent]) {
    for run in extents {
      runs.append(Run(slab: run.slab, offset: UInt32(run.offset), byteCount: UInt32(run.storedByteCount)))
    }
  }

  /// The counters that the slabs of all runs should have.
  func slabCounters() -> [UInt32: SlabCounter] {
    var counters: [UInt32: SlabCounter] = [:]
    for run in runs {
      counters[run.slab, default: SlabCounter()].liveByteCount += UInt64(run.byteCount)
      let end = UInt64(run.offset) + UInt64(run.byteCount)
      counters[run.slab]!.end = max(counters[run.slab]!.end, end)
    }
    return counters
  }

  /// Checks that the numbers to be assigned next are not in use. Call after the checks of files and
  /// slabs.
  mutating func checkCounters() throws {
    guard let bytes = try records.value(.state), let counters = try? CatalogCounters(bytes) else {
      return report("the numbers to be given out next cannot be")
    }
    try records.scan(.all(.pinOfFile)) { key, _ in lastFile = max(lastFile, key.number(at: 1) ?? 0) }
    try records.scan(.all(.queued)) { key, _ in lastFile = max(lastFile, key.number(at: 1) ?? 0) }
    if lastFile >= counters.nextFile { report("the next file's id \(counters.nextFile) is in use") }
    if let slab = runs.last?.slab, slab >= counters.nextSlab {
      report("the next slab's number \(counters.nextSlab) is in use")
    }
  }

  private mutating func check(_ attribute: CatalogKey, isOwned: Bool) {
    guard (1...FileName.byteCountMax).contains(attribute.bytes.count - 9) else {
      return report("an extended attribute that cannot be")
    }
    if !isOwned { report("an extended attribute of a file that is not there") }
  }

  mutating func checkSlabs(
    _ counters: [UInt32: SlabCounter], size: (UInt32) throws(IOFailure) -> UInt64?
  ) throws(IOFailure) {
    runs.sort { ($0.slab, $0.offset) < ($1.slab, $1.offset) }
    var seen: Set<UInt32> = []
    var rest = runs[...]
    while let slab = rest.first?.slab {
      let inSlab = rest.prefix { $0.slab == slab }
      rest = rest.dropFirst(inSlab.count)
      seen.insert(slab)
      var end: UInt64 = 0
      var live: UInt64 = 0
      for run in inSlab {
        if UInt64(run.offset) < end { report("two runs of slab \(slab) share bytes") }
        end = max(end, UInt64(run.offset) + UInt64(run.byteCount))
        live += UInt64(run.byteCount)
      }
      let counter = counters[slab] ?? SlabCounter()
      if counter.liveByteCount != live || counter.end < end {
        report("slab \(slab) has \(live) live bytes and counts \(counter.liveByteCount)")
      }
      do throws(IOFailure) {
        if let stored = try size(slab) {
          guard stored < end else { continue }
          findings.append(
            Finding(
              .damage, .segmentDamaged, "slab \(slab) is \(end - stored) bytes shorter than its files need"))
        } else {
          findings.append(Finding(.damage, .segmentDamaged, "slab \(slab) is missing"))
        }
      } catch {
        guard error.isOfFile else { throw error }
        findings.append(Finding(.damage, .segmentDamaged, "slab \(slab) cannot be read: \(error)"))
      }
    }
    for slab in counters.keys.sorted() where !seen.contains(slab) {
      report("slab \(slab) counts live bytes and has none")
    }
  }
}

extension CatalogSnapshot {
  /// One path for each of some files, as far as the files have names.
  func paths(of files: Set<UInt64>) throws -> [UInt64: String] {
    guard !files.isEmpty else { return [:] }
    var nameOf: [UInt64: (parent: UInt64, name: FileName)] = [:]
    do {
      try scan(.all(.entry)) { key, value in
        guard let parent = key.number(at: 1), let name = FileName(bytes: Array(key.bytes.dropFirst(9))),
          let entry = try? DirectoryEntry(value), entry.kind == .directory || files.contains(entry.file)
        else { return }
        nameOf[entry.file] = (parent, name)
      }
    } catch  where TableFile.isLoss(error) {
      // Names in the damaged block are unknown; the block itself is reported elsewhere.
    }
    var paths: [UInt64: String] = [:]
    for file in files {
      var names: [FileName] = []
      var next = file
      while let (parent, name) = nameOf[next], names.count < 10_000 {
        names.append(name)
        next = parent
      }
      if !names.isEmpty { paths[file] = StorePath.text(names.reversed()) }
    }
    return paths
  }
}

extension ContainerError {
  /// The finding that corresponds to a failed opening with this error; nil if the error is not
  /// damage.
  var findingKind: Finding.Kind? {
    switch code {
    case .superblockTorn: .superblockSlotTorn
    case .superblockAltered: .superblockSlotAltered
    case .journalDamaged: .journalDamaged
    case .journalAltered: .journalAltered
    case .tableDamaged: .tableDamaged
    case .catalogDamaged: .catalogInconsistent
    case .rolledBack: .rolledBack
    case .ioFailed where isDamage: .unreadable
    default: nil
    }
  }
}
