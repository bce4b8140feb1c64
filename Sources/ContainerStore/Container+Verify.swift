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

extension VerifyReport {
  /// What ended a check. A block that is damaged meets several of them.
  fileprivate mutating func add(_ error: ContainerError) {
    guard let kind = error.code.findingKind, !(kind == .tableDamaged && findings.contains { $0.kind == kind })
    else {
      return
    }
    findings.append(Finding(.damage, kind, error.description))
  }
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

  /// The same for an opened container. One that is open for writing is checked without second copies,
  /// journals and unknown files, which change under the check.
  public func verify(control: BulkControl = BulkControl()) throws -> VerifyReport {
    try namingPath(io.place) { try checkEverything(control) }
  }

  private func checkEverything(_ control: BulkControl) throws -> VerifyReport {
    try checkSuperblock()
    if mode == .readOnly { try withCheckingLoader { try $0.checkCopies() } }
    return try withSnapshot(settled: true) { records in
      var records = records
      let isLost = log.findings.contains { $0.kind == .tableDamaged }
      if isLost { records.readMode = .salvaging }
      var report = try checkRecords(records, control)
      // What contradicts what stood in a lost block is no finding of its own.
      if isLost { report.findings.removeAll { $0.kind == .catalogInconsistent && $0.path == nil } }
      let found = log.findings
      report.findings = found + report.findings.filter { !found.contains($0) }
      return report
    }
  }

  private func checkRecords(_ records: CatalogSnapshot, _ control: BulkControl) throws -> VerifyReport {
    var report = VerifyReport(findings: [])
    var check = CatalogCheck(records)
    do {
      report.findings += try RecordCheck(records).findings()
      report.findings += try unknownFiles(records)
      try check.checkNames()
      try check.countFiles()
    } catch let error as ContainerError where error.code.findingKind != nil {
      report.add(error)
    }
    let opening = SegmentCheck(
      self, fileCount: check.fileCount, byteCount: check.byteCount, control: control)
    let quiet = BulkControl(cancellation: control.cancellation)
    let pinnedOpening = SegmentCheck(
      self, fileCount: check.fileCount, byteCount: check.byteCount, control: quiet)
    // Of versions that are not, or not wholly, those of the files now.
    var pinnedPaths: [UInt64: String] = [:]
    do {
      try check.checkFiles { try opening.add($0) }
      var outbox = OutboxCheck(records)
      defer { report.findings += outbox.findings }
      var deliveries = DeliveryCheck(records)
      defer { report.findings += deliveries.findings }
      try outbox.check { pinned, extents in
        check.add(extents)
        guard !extents.isEmpty || !keys.hasEpoch(pinned.inode.epoch) else { return }
        try pinnedOpening.add(StoredFile(id: pinned.file, inode: pinned.inode, extents: extents))
        pinnedPaths[pinned.file] = pinned.pathText
      }
      try deliveries.check()
      check.checkSlabs(try records.slabCounters(), size: slabs.size)
      try check.checkCounters()
    } catch let error as ContainerError where error.code.findingKind != nil {
      report.add(error)
    }
    try opening.finish()
    try pinnedOpening.finish()
    for (file, detail) in pinnedOpening.damaged.sorted(by: { $0.key < $1.key }) {
      report.findings.append(
        Finding(
          .damage, .segmentDamaged, "a version that a message in the outbox needs: \(detail)",
          path: pinnedPaths[file]))
    }
    if let failure = check.slabFailure { throw failure }
    report.findings += check.findings
    let damaged = opening.damaged
    let paths = try records.paths(of: Set(damaged.keys).union(check.damagedFiles.keys))
    for (file, detail) in check.damagedFiles.merging(damaged, uniquingKeysWith: { first, _ in first })
      .sorted(by: { $0.key < $1.key })
    {
      report.findings.append(
        Finding(
          .damage, check.damagedFiles[file] == nil ? .segmentDamaged : .catalogInconsistent, detail,
          path: paths[file] ?? "file \(file)"))
    }
    report.fileCount = check.fileCount
    report.byteCount = check.byteCount
    return report
  }

  func checkSuperblock() throws {
    let cipher = SecretStreamCipher(options.cipher)
    let readings = try Superblock.read(try io.open(Superblock.name, .read))
    try withSuperblock { slot, _, rootKey in
      for case .good(let other) in readings where other != slot && other.sequence < slot.sequence {
        // Older than the one in use: it must be authentic all the same.
        if (try? other.open(rootKey: rootKey, cipher: cipher)) == nil {
          log.add(
            Finding(
              .damage, .superblockSlotAltered, "the copy of the superblock that is not in use was altered"))
        }
      }
    }
  }

  /// Calls `body` with a loader that reads both copies of every record and block, and continues after damage.
  func withCheckingLoader<R>(_ body: (CatalogLoader) throws -> R) throws -> R {
    try withSuperblock { _, superblock, _ in
      var loader = loader(
        superblock, log: log, writerIsAlive: (try? lockFile.isLocked(.writer)) ?? false)
      loader.readsBothCopies = true
      loader.salvages = true
      loader.skipsTables = true
      return try body(loader)
    }
  }

  private func unknownFiles(_ records: CatalogSnapshot) throws -> [Finding] {
    guard mode == .readOnly else { return [] }
    let slabNames = Set(try records.slabCounters().keys.map { String(SlabStore.name($0).dropFirst(5)) })
    return try withSuperblock { _, body, _ in
      let tables = Set(body.completeGeneration.tables.map(\.id.hex))
      let journals = Set(try journalsInUse(body).map(\.hex))
      var findings: [Finding] = []
      for (directory, known) in [
        ("catalog", tables), ("journal", journals), (CopiedFile.copyFolder, tables.union(journals)),
        ("slab", slabNames),
      ] {
        let unknown = try io.fileNames(in: directory).filter { !known.contains($0) }
        let ours = unknown.count { Self.mayRemove($0, in: directory) }
        if ours > 0 {
          findings.append(
            Finding(
              .note, .unknownFile,
              "\(ours) file(s) in \(directory) that the catalog does not name; opening for writing removes them"
            ))
        }
        if ours < unknown.count {
          findings.append(
            Finding(
              .note, .unknownFile,
              "\(unknown.count - ours) file(s) in \(directory) that are not the container's; they are ignored"
            ))
        }
      }
      return findings
    }
  }
}

extension [Finding] {
  /// A catalog that is wrong from end to end is told by its first errors.
  private static var inconsistencyCountMax: Int { 1000 }

  mutating func addInconsistency(_ detail: String) {
    guard count < Self.inconsistencyCountMax else { return }
    append(Finding(.damage, .catalogInconsistent, detail))
  }
}

/// A file as it is in the catalog.
private struct StoredFile {
  var id: UInt64
  var inode: Inode
  var extents: [Extent]
}

/// Opens every segment of the files that it is given, some thousand files at a time.
private final class SegmentCheck {
  private let container: Container
  private let control: BulkControl
  private let began = Clock.monotonicNanoseconds()
  private let fileCount: Int
  private let byteCount: UInt64
  private var filesDone = 0
  private var bytesDone: UInt64 = 0
  private var files: [StoredFile] = []
  private var plan = UnitPlan()
  /// What is wrong, by file.
  private(set) var damaged: [UInt64: String] = [:]

  private static let fileCountMax = 4096
  private static let byteCountMax: UInt64 = 256 << 20

  init(_ container: Container, fileCount: Int, byteCount: UInt64, control: BulkControl) {
    self.container = container
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.control = control
  }

  func add(_ file: StoredFile) throws {
    guard container.keys.hasEpoch(file.inode.epoch) else {
      damaged[file.id] = "there is no key for epoch \(file.inode.epoch)"
      return
    }
    files.append(file)
    plan.addFile(extents: file.extents)
    if files.count >= Self.fileCountMax || plan.byteCount >= Self.byteCountMax { try run() }
  }

  func finish() throws { try run() }

  private func run() throws {
    let files = files
    let found = Guarded<[UInt64: String]>([:])
    let progress = control.progress.map { report in
      { [self] (part: BulkProgress) in
        report(
          BulkProgress(
            bytesDone: min(byteCount, bytesDone &+ part.bytesDone), byteCount: byteCount,
            filesDone: filesDone + part.filesDone, fileCount: fileCount,
            seconds: Double(Clock.monotonicNanoseconds() - began) / 1e9))
      }
    }
    let container = container
    _ = try BulkWork(
      plan: plan, control: BulkControl(progress: progress, cancellation: control.cancellation),
      workers: container.workers
    ).run { context, pieces in
      for piece in pieces {
        let file = files[piece.file]
        guard found.withLock({ $0[file.id] == nil }) else { continue }
        let problem: String?
        do {
          problem = try verifyRun(
            piece.source!, key: container.fileKey(file.id, file.inode), slabs: container.slabs,
            context: context)?.description
        } catch let failure as IOFailure where fileFault.contains(failure.errno) {
          problem = "the system cannot read it: \(failure)"
        }
        if let problem { found.withLock { $0[file.id] = problem } }
      }
      return []
    }
    damaged.merge(found.withLock { $0 }) { first, _ in first }
    filesDone += files.count
    bytesDone &+= plan.byteCount
    self.files = []
    plan = UnitPlan()
  }
}

/// Whether a catalog can be true: every name leads to a file, every file has its names, no two runs share a byte, and the books of
/// the slabs add up. Takes some 24 bytes of memory a file.
private struct CatalogCheck {
  private let records: CatalogSnapshot
  private(set) var findings: [Finding] = []
  /// What is wrong with single files.
  private(set) var damagedFiles: [UInt64: String] = [:]
  private(set) var fileCount = 0
  private(set) var byteCount: UInt64 = 0
  private(set) var slabFailure: IOFailure?
  /// What entries name: file id and kind, in order after ``checkNames()``.
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

  /// Every directory hangs together with the root, and names stand in directories.
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

  /// Calls `body` for every file that is possible, in order of ids.
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

  /// Runs that are live, and no file's.
  mutating func add(_ extents: [Extent]) {
    for run in extents {
      runs.append(Run(slab: run.slab, offset: UInt32(run.offset), byteCount: UInt32(run.storedByteCount)))
    }
  }

  /// What is given out next is not in use. After files and slabs.
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

  mutating func checkSlabs(_ counters: [UInt32: SlabCounter], size: (UInt32) throws(IOFailure) -> UInt64?) {
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
        // That it cannot be read now is no damage.
        slabFailure = slabFailure ?? error
      }
    }
    for slab in counters.keys.sorted() where !seen.contains(slab) {
      report("slab \(slab) counts live bytes and has none")
    }
  }
}

extension CatalogSnapshot {
  /// A path for each of some files, as far as they have names.
  fileprivate func paths(of files: Set<UInt64>) throws -> [UInt64: String] {
    guard !files.isEmpty else { return [:] }
    var nameOf: [UInt64: (parent: UInt64, name: FileName)] = [:]
    do {
      try scan(.all(.entry)) { key, value in
        guard let parent = key.number(at: 1), let name = FileName(bytes: Array(key.bytes.dropFirst(9))),
          let entry = try? DirectoryEntry(value), entry.kind == .directory || files.contains(entry.file)
        else { return }
        nameOf[entry.file] = (parent, name)
      }
    } catch let error as ContainerError where error.code == .tableDamaged {
      // Names in the damaged block are not known, which is reported elsewhere.
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
