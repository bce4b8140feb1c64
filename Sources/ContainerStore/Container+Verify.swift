import EncryptedFile
import SodiumPrimitives

/// What `verify` found.
public struct VerifyReport: Sendable {
  public var findings: [Finding]
  public var fileCount = 0
  /// Plaintext bytes of the files that were read.
  public var byteCount: UInt64 = 0

  public var hasDamage: Bool { findings.contains { $0.severity == .damage } }
}

extension Container {
  /// Opens everything that is live: both copies of the superblock, both of the catalog, every journal record, table block and
  /// segment; and checks that the catalog does not contradict itself. Damage is reported, not thrown, unless the container cannot
  /// be opened at all for want of the right key, format or permission. Changes nothing, and works while another process writes.
  public static func verify(
    at path: String, credential: borrowing Credential, options: Options = Options(),
    control: BulkControl = BulkControl()
  ) throws -> VerifyReport {
    try verify(io: PosixBlockIO(path), credential: credential, options: options, control: control)
  }

  package static func verify(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options(),
    control: BulkControl = BulkControl()
  ) throws -> VerifyReport {
    let container: Container
    do {
      container = try open(io: io, credential: credential, mode: .readOnly, options: options)
    } catch let error as ContainerError {
      guard let kind = error.code.findingKind else { throw error }
      return VerifyReport(findings: [Finding(.damage, kind, error.description)])
    }
    defer { try? container.close() }
    return try container.verify(control: control)
  }

  /// The same for an opened container.
  public func verify(control: BulkControl = BulkControl()) throws -> VerifyReport {
    try namingPath(io.place) { try checkEverything(control) }
  }

  private func checkEverything(_ control: BulkControl) throws -> VerifyReport {
    try withSnapshot(settled: true) { records in
      var report = VerifyReport(findings: findings)
      report.findings += try checkSuperblock()
      let catalog = try CatalogCheck(records: records, slabSize: slabSize)
      report.findings += catalog.findings
      report.findings += try unknownFiles(records)
      report.fileCount = catalog.files.count
      report.findings += try openEverything(catalog, control: control)
      // Files with holes may add up to more than can be counted.
      report.byteCount = catalog.files.reduce(0) { sum, file in
        let (next, overflows) = sum.addingReportingOverflow(file.found.inode.size)
        return overflows ? .max : next
      }
      return report
    }
  }

  private func checkSuperblock() throws -> [Finding] {
    let cipher = SecretStreamCipher(options.cipher)
    let readings = try Superblock.read(try io.open("superblock", .read))
    return try withSuperblock { slot, body, rootKey in
      var findings: [Finding] = []
      for case .good(let other) in readings where other != slot && other.sequence < slot.sequence {
        // Older than the one in use: it must be authentic all the same.
        if (try? other.open(rootKey: rootKey, cipher: cipher)) == nil {
          findings.append(
            Finding(
              .damage, .superblockSlotAltered, "the copy of the superblock that is not in use was altered"))
        }
      }
      if mode == .readOnly {
        let loader = CatalogLoader(
          io: io, container: id, body: body, keys: keys, ciphers: ciphers, cache: cache,
          writerIsAlive: !body.isClean)
        findings += try loader.verifyTables()
      }
      return findings
    }
  }

  private func slabSize(_ slab: UInt32) -> UInt64? { try? slabs.file(slab).size() }

  private func unknownFiles(_ records: CatalogSnapshot) throws -> [Finding] {
    guard mode == .readOnly else { return [] }
    let slabNames = Set(try records.slabCounters().keys.map { String(SlabStore.name($0).dropFirst(5)) })
    return try withSuperblock { _, body, _ in
      let tables = Set(body.generations.flatMap(\.tables).map(\.id.hex))
      var findings: [Finding] = []
      for (directory, known) in [("catalog", tables), ("slab", slabNames)] {
        let unknown = try io.fileNames(in: directory).filter { !known.contains($0) }
        if !unknown.isEmpty {
          findings.append(
            Finding(
              .note, .unknownFile,
              "\(unknown.count) file(s) in \(directory) that the catalog does not name; opening for writing removes them"
            ))
        }
      }
      return findings
    }
  }

  private func openEverything(_ catalog: CatalogCheck, control: BulkControl) throws -> [Finding] {
    var plan = UnitPlan()
    for file in catalog.files { plan.addFile(extents: file.extents) }
    let damaged = Guarded<[Int: SegmentError]>([:])
    let files = catalog.files
    _ = try BulkWork(plan: plan, control: control, workers: workers).run {
      context, pieces in
      for piece in pieces where damaged.withLock({ $0[piece.file] == nil }) {
        let file = files[piece.file]
        let problem = try verifyRun(
          piece.source!, of: FileIdentity(container: self.id, file: file.found.id),
          key: try self.fileKey(file.found.id, file.found.inode), slabs: self.slabs, cipher: context.cipher)
        if let problem { damaged.withLock { $0[piece.file] = problem } }
      }
      return []
    }
    return damaged.withLock { $0 }.sorted { $0.key < $1.key }.map { file, problem in
      Finding(.damage, .segmentDamaged, problem.description, path: files[file].path)
    }
  }
}

/// Whether a catalog can be true: every name leads to a file, every file has its names, no two runs share a byte, and the books of
/// the slabs add up.
private struct CatalogCheck {
  struct File {
    var path: String
    var found: FoundFile
    var extents: [Extent]
  }

  private(set) var files: [File] = []
  private(set) var findings: [Finding] = []

  init(records: CatalogSnapshot, slabSize: (UInt32) -> UInt64?) throws {
    var linksSeen: [UInt64: UInt32] = [rootFileID: 1]
    do {
      for (names, file) in try records.subtree(rootFileID) {
        linksSeen[file.id, default: 0] += 1
        guard linksSeen[file.id] == 1, file.inode.kind == .file else { continue }
        let path = StorePath.text(names)
        do {
          let extents = try EncryptedFileReader.checked(
            records.extents(file.id, file.inode), size: file.inode.size)
          files.append(File(path: path, found: file, extents: extents))
        } catch let error as SegmentError {
          report(error.description, path: path)
        }
      }
      try checkInodes(records, linksSeen)
      try checkSlabs(records, slabSize)
    } catch let error as ContainerError where error.code == .catalogDamaged {
      report(error.description)
    }
  }

  private mutating func report(_ detail: String, path: String? = nil) {
    findings.append(Finding(.damage, .catalogInconsistent, detail, path: path))
  }

  private mutating func checkInodes(_ records: CatalogSnapshot, _ linksSeen: [UInt64: UInt32]) throws {
    for (key, value) in try records.records(.all(.inode)) {
      guard let id = key.number(at: 1), let inode = try? Inode(value) else {
        report("an inode that cannot be")
        continue
      }
      if linksSeen[id] ?? 0 != inode.linkCount {
        report("file \(id) has \(linksSeen[id] ?? 0) names and counts \(inode.linkCount)")
      }
    }
    for (key, value) in try records.records(.all(.entry)) {
      guard let entry = try? DirectoryEntry(value), let inode = try? records.inode(entry.file),
        let parent = key.number(at: 1), linksSeen[parent] != nil
      else {
        report("a directory entry that leads nowhere")
        continue
      }
      if inode.kind != entry.kind { report("a directory entry of another kind than its file") }
    }
    var hasFirst: [UInt64: Bool] = [:]
    for (key, _) in try records.records(.all(.extent)) {
      guard let id = key.number(at: 1) else {
        report("an extent of no file")
        continue
      }
      if hasFirst[id] == nil {
        // An inode that cannot be was reported above.
        hasFirst[id] = try records.value(.inode(id)).map { (try? Inode($0))?.firstExtent != nil } ?? false
      }
      if hasFirst[id] == false { report("file \(id) has an extent that no inode leads to") }
    }
  }

  private mutating func checkSlabs(_ records: CatalogSnapshot, _ slabSize: (UInt32) -> UInt64?) throws {
    let counters = try records.slabCounters()
    var runs: [UInt32: [Extent]] = [:]
    for extent in files.flatMap(\.extents) { runs[extent.slab, default: []].append(extent) }
    for (slab, extents) in runs.sorted(by: { $0.key < $1.key }) {
      var end: UInt64 = 0
      var live: UInt64 = 0
      for extent in extents.sorted(by: { $0.offset < $1.offset }) {
        if extent.offset < end { report("two runs of slab \(slab) share bytes") }
        end = max(end, extent.offset + UInt64(extent.storedByteCount))
        live += UInt64(extent.storedByteCount)
      }
      let counter = counters[slab] ?? SlabCounter()
      if counter.liveByteCount != live || counter.end < end {
        report("slab \(slab) has \(live) live bytes and counts \(counter.liveByteCount)")
      }
      if let size = slabSize(slab), size < end {
        findings.append(
          Finding(.damage, .segmentDamaged, "slab \(slab) is \(end - size) bytes shorter than its files need")
        )
      } else if slabSize(slab) == nil {
        findings.append(Finding(.damage, .segmentDamaged, "slab \(slab) is missing"))
      }
    }
    for slab in counters.keys where runs[slab] == nil {
      report("slab \(slab) counts live bytes and has none")
    }
  }
}

extension ContainerError.Code {
  /// The finding that an opening which failed for this reason stands for; nil when it is no damage.
  fileprivate var findingKind: Finding.Kind? {
    switch self {
    case .superblockTorn: .superblockSlotTorn
    case .superblockAltered: .superblockSlotAltered
    case .journalDamaged: .journalDamaged
    case .journalAltered: .journalAltered
    case .tableDamaged: .tableDamaged
    case .catalogDamaged: .catalogInconsistent
    case .rolledBack: .rolledBack
    default: nil
    }
  }
}
