import EncryptedFile
import SodiumPrimitives

/// Something that is not as it should be, found while a container is opened or verified.
public struct Finding: Sendable, Equatable {
  public enum Severity: String, Sendable {
    /// What a crash leaves; nothing that was durable is missing, as far as can be told.
    case note
    case damage
  }

  public enum Kind: String, Sendable {
    case superblockSlotTorn, superblockSlotOutdated, superblockSlotAltered
    case tornTail, journalDamaged, journalAltered, tableDamaged, usedPreviousGeneration
    case catalogInconsistent, segmentDamaged, unknownFile, rolledBack
  }

  public let severity: Severity
  public let kind: Kind
  /// Without names from inside the container.
  public let detail: String
  /// The path in the container, where one is known.
  public let path: String?

  init(_ severity: Severity, _ kind: Kind, _ detail: String, path: String? = nil) {
    self.severity = severity
    self.kind = kind
    self.detail = detail
    self.path = path
  }
}

/// The catalog as it was read from tables and journals.
struct LoadedCatalog {
  var snapshot = CatalogSnapshot()
  var commit: UInt64 = 0
  /// The generation whose tables are used.
  var generation: UInt64 = 0
  /// The last commit in the snapshot's frozen changes.
  var frozenCommit: UInt64?
  /// Newest first.
  var journals: [(id: Identifier, generation: UInt64)] = []
  /// Of the current journal: what was accepted.
  var end: JournalEnd?
  var findings: [Finding] = []
  /// Slabs with segments of commits that were not known to be durable.
  var slabsToSynchronize: Set<UInt32> = []
  /// Of the journals whose changes are in the overlay.
  var overlayByteCount: UInt64 = 0
}

/// Reads the catalog as CONTAINER-FORMAT.md says under "Reading the journals".
struct CatalogLoader {
  let io: any BlockIO
  let container: Identifier
  let body: SuperblockBody
  let keys: Keyring
  let ciphers: CipherPool
  let cache: BlockCache
  private let cipher: SecretStreamCipher
  private let checksTables: Bool
  /// Another process is writing: what looks like a torn tail may be a record in the making.
  let writerIsAlive: Bool

  /// Tables that are together no longer than this are read whole when they are opened, so that damage is found while there is a
  /// second copy to use.
  private static let checkedByteCountMax: UInt64 = 2 << 20

  init(
    io: any BlockIO, container: Identifier, body: SuperblockBody, keys: Keyring, ciphers: CipherPool,
    cache: BlockCache, writerIsAlive: Bool, checksTables: Bool = false
  ) {
    self.checksTables = checksTables
    self.io = io
    self.container = container
    self.body = body
    self.keys = keys
    self.ciphers = ciphers
    self.cache = cache
    cipher = SecretStreamCipher(ciphers.backend)
    self.writerIsAlive = writerIsAlive
  }

  func load() throws -> LoadedCatalog {
    let complete = body.generations.filter { $0.state == .complete }
    var problem: Finding?
    for (i, generation) in complete.enumerated() {
      var catalog = LoadedCatalog()
      catalog.generation = generation.number
      do {
        let tables = try openTables(of: generation)
        if checksTables || tables.reduce(0, { $0 + $1.table.byteCount }) <= Self.checkedByteCountMax {
          for table in tables { try table.check() }
        }
        catalog.snapshot.tables = tables
        catalog.commit = generation.commit
      } catch let error as MalformedBytes {
        problem = Finding(.damage, .tableDamaged, "generation \(generation.number): \(error.what)")
        continue
      } catch let error as IOFailure where error.errno == missingFile {
        problem = Finding(.damage, .tableDamaged, "generation \(generation.number): a table is missing")
        continue
      }
      if i > 0, let problem {
        catalog.findings += [
          problem, Finding(.damage, .usedPreviousGeneration, "the catalog was read from its second copy"),
        ]
      }
      try replayJournals(since: generation, into: &catalog)
      // Without these nothing opens; larger tables were not read whole.
      do {
        _ = try catalog.snapshot.catalogCounters()
        _ = try catalog.snapshot.slabCounters()
      } catch let error as ContainerError where error.code == .tableDamaged {
        problem = Finding(.damage, .tableDamaged, "generation \(generation.number): \(error.detail ?? "")")
        continue
      }
      return catalog
    }
    throw ContainerError(.tableDamaged, detail: problem?.detail)
  }

  /// Reads what an ordinary opening does not: every block of every generation's tables, and journals that only the older one
  /// needs; and compares the state that the older one leads to with the newest's.
  func verifyTables() throws -> [Finding] {
    var findings: [Finding] = []
    var newest: CatalogSnapshot?
    for (i, generation) in body.generations.filter({ $0.state == .complete }).enumerated() {
      let copy = i == 0 ? "" : "second copy, "
      var catalog = LoadedCatalog()
      do {
        catalog.snapshot.tables = try openTables(of: generation)
        catalog.commit = generation.commit
        // Those that both name are checked once.
        let checked = Set(newest?.tables.map(\.table.id) ?? [])
        for table in catalog.snapshot.tables where !checked.contains(table.table.id) { try table.check() }
        try replayJournals(since: generation, into: &catalog)
        if let newest, body.isClean, try !catalog.snapshot.isEqual(to: newest) {
          findings.append(
            Finding(.damage, .catalogInconsistent, "the second copy of the catalog leads to another state"))
        }
        newest = catalog.snapshot
      } catch let error as MalformedBytes {
        findings.append(
          Finding(.damage, .tableDamaged, "\(copy)generation \(generation.number): \(error.what)"))
      } catch let error as IOFailure where error.errno == missingFile {
        findings.append(
          Finding(
            .damage, .tableDamaged, "\(copy)generation \(generation.number): \(error.file) is missing"))
      } catch let error as ContainerError {
        let kind: Finding.Kind = error.code == .journalAltered ? .journalAltered : .journalDamaged
        findings.append(Finding(.damage, kind, copy + error.description))
      }
    }
    return findings
  }

  private func openTables(of generation: Generation) throws -> [TableFile] {
    try generation.tables.map { table in
      try TableFile(
        table, file: try io.open(Table.name(table.id), .read), container: container,
        key: try keys.tableKey(table, generation: generation.number), ciphers: ciphers, cache: cache)
    }
  }

  // MARK: Journals

  private struct Link {
    var id: Identifier
    var generation: UInt64
    var file: any BlockFile
    var header: JournalHeader
    var headerEnd: JournalEnd
    /// Where it ends, when that is known.
    var end: JournalEnd?
  }

  private func replayJournals(since generation: Generation, into catalog: inout LoadedCatalog) throws {
    var links: [Link] = []
    var next = body.journal
    var end = body.end
    if let current = body.journal, current.generation < generation.number { catalog.end = body.end }
    while let (id, number) = next, number >= generation.number {
      guard !links.contains(where: { $0.id == id }) else {
        throw ContainerError(.journalAltered, detail: "journals name one another in a circle")
      }
      let link = try openJournal(id, generation: number, end: end)
      links.append(link)
      if let predecessor = link.header.predecessor, predecessor.generation > number {
        throw ContainerError(
          .journalDamaged, detail: "a journal of an older generation than the one before it")
      }
      end = link.header.predecessor?.end
      next = link.header.predecessor.map { ($0.id, $0.generation) }
    }
    catalog.journals = links.map { ($0.id, $0.generation) }
    let pending = body.generations.first { $0.state == .pending }?.number
    for link in links.reversed() {
      if link.generation == pending, catalog.frozenCommit == nil {
        // A checkpoint was under way: it goes on with what it had to write.
        catalog.snapshot.frozen = catalog.snapshot.overlay
        catalog.snapshot.overlay = ChangeMap()
        catalog.frozenCommit = catalog.commit
        catalog.overlayByteCount = 0
      }
      guard link.header.commit == catalog.commit else {
        throw ContainerError(
          .journalDamaged, detail: "it begins after commit \(link.header.commit), expected \(catalog.commit)")
      }
      let accepted =
        try link.end.map { try replay(link, through: $0, into: &catalog) } ?? replayTail(link, into: &catalog)
      catalog.overlayByteCount += accepted.offset
      catalog.end = accepted
    }
  }

  private func openJournal(_ id: Identifier, generation: UInt64, end: JournalEnd?) throws -> Link {
    let file = try openFile(JournalWriter.name(id))
    let reading = try readHeader(file, id, generation: generation)
    switch reading {
    case .good(let number, let previous, let payload, let authenticator, let frameEnd):
      guard number == 0, previous.allSatisfy({ $0 == 0 }) else {
        throw ContainerError(.journalAltered, detail: "it does not begin with its header")
      }
      let header = try journalHeader(payload)
      guard header.generation == generation else {
        throw ContainerError(.journalDamaged, detail: "a journal of another generation")
      }
      let headerEnd = JournalEnd(
        record: 0, offset: frameEnd, authenticator: authenticator, commit: header.commit)
      return Link(id: id, generation: generation, file: file, header: header, headerEnd: headerEnd, end: end)
    case .unusable(let reason):
      throw ContainerError(.journalDamaged, detail: "its header: \(reason)")
    case .altered:
      throw ContainerError(.journalAltered, detail: "its header is not authentic")
    }
  }

  /// The journal that this one's header names.
  func predecessor(of id: Identifier, generation: UInt64) throws -> (id: Identifier, generation: UInt64)? {
    try openJournal(id, generation: generation, end: nil).header.predecessor.map { ($0.id, $0.generation) }
  }

  /// Whether there is a journal with a commit after `commit` that the superblock does not lead to. A superblock names a journal
  /// before its first record, so no crash leaves that: the superblock was put back.
  func hasLaterState(than commit: UInt64) throws -> Bool {
    let known = try reachedJournals()
    for name in try io.fileNames(in: "journal") {
      guard let id = Identifier(hex: name), !known.contains(id),
        let file = try? io.open(JournalWriter.name(id), .read)
      else { continue }
      for generation in body.generations {
        guard
          case .good(0, _, _, let authenticator, let end) = try readHeader(
            file, id, generation: generation.number)
        else { continue }
        let key = try keys.journalKey(id, generation: generation.number)
        let offset = JournalFrame.alignedUp(end)
        if case .good(1, authenticator, let payload, _, _) = try read(file, id, at: offset, key: key),
          let record = try? JournalRecord(payload), record.commit > commit
        {
          return true
        }
      }
    }
    return false
  }

  /// The current journal and those before it, as far as the superblock has their generations. What a crash left behind the accepted
  /// end of one that only the second copy needs is no later state.
  private func reachedJournals() throws -> Set<Identifier> {
    let generations = Set(body.generations.map(\.number))
    var reached: Set<Identifier> = []
    var next = body.journal
    while let (id, generation) = next, generations.contains(generation), reached.insert(id).inserted {
      // One that is damaged is reported elsewhere.
      do { next = try predecessor(of: id, generation: generation) } catch is ContainerError { next = nil }
    }
    return reached
  }

  private func openFile(_ name: String) throws -> any BlockFile {
    do { return try io.open(name, .read) } catch  where error.errno == missingFile {
      throw ContainerError(.journalDamaged, detail: "a journal is missing")
    }
  }

  private func readHeader(
    _ file: any BlockFile, _ id: Identifier, generation: UInt64
  ) throws -> JournalFrame.Reading {
    let key = try keys.journalKey(id, generation: generation)
    return try read(file, id, at: 0, key: key)
  }

  private func journalHeader(_ payload: [UInt8]) throws -> JournalHeader {
    do { return try JournalHeader(payload) } catch {
      throw ContainerError(.journalDamaged, detail: error.what)
    }
  }

  private func read(
    _ file: any BlockFile, _ id: Identifier, at offset: UInt64, key: borrowing SecretKey
  ) throws(IOFailure) -> JournalFrame.Reading {
    try JournalFrame.read(
      file, at: offset, place: JournalFrame.Place(container: container, journal: id), key: key, cipher: cipher
    )
  }

  /// A journal whose end is known: everything up to it must be there.
  private func replay(_ link: Link, through end: JournalEnd, into catalog: inout LoadedCatalog) throws
    -> JournalEnd
  {
    let key = try keys.journalKey(link.id, generation: link.generation)
    var last = link.headerEnd
    var commit = PendingCommit()
    while last.record < end.record {
      let step = try next(after: last, in: link, key: key)
      switch step {
      case .record(let record, let newEnd):
        last = newEnd
        if let finished = try commit.add(record, after: catalog.commit) {
          catalog.apply(finished)
        }
      case .bad(let reason):
        throw ContainerError(.journalDamaged, detail: "record \(last.record + 1): \(reason)")
      case .altered:
        throw ContainerError(.journalAltered, detail: "record \(last.record + 1) is not authentic")
      }
    }
    guard last.record == end.record, last.authenticator == end.authenticator, last.offset == end.offset,
      commit.isEmpty, catalog.commit == end.commit
    else { throw ContainerError(.journalAltered, detail: "it does not end as it should") }
    return last
  }

  /// The current journal after an unclean end: up to the first record that is not good.
  private func replayTail(_ link: Link, into catalog: inout LoadedCatalog) throws -> JournalEnd {
    let key = try keys.journalKey(link.id, generation: link.generation)
    var last = link.headerEnd
    var records: [(record: JournalRecord, end: JournalEnd)] = []
    var stop: String?
    scan: while true {
      switch try next(after: last, in: link, key: key) {
      case .record(let record, let end):
        records.append((record, end))
        last = end
      case .bad(let reason):
        let bad = last.record + 1
        if try lastDurableRecord(in: link, after: last, key: key) >= bad {
          // A living writer may have written it, and what follows it, since it was looked for.
          if case .record(let record, let end) = try next(after: last, in: link, key: key) {
            records.append((record, end))
            last = end
            continue scan
          }
          throw ContainerError(
            .journalDamaged, detail: "record \(bad): \(reason), and a later record says that it was durable")
        }
        stop =
          try hasBytes(link.file, at: JournalFrame.alignedUp(last.offset)) ? "record \(bad): \(reason)" : nil
        break scan
      case .altered:
        throw ContainerError(.journalAltered, detail: "record \(last.record + 1) is not authentic")
      }
    }
    let durable = records.map(\.record.durableThrough).max() ?? 0
    var accepted = link.headerEnd
    var commit = PendingCommit()
    for (record, end) in records {
      guard let finished = try commit.add(record, after: catalog.commit) else { continue }
      // A writer that was told not to sync: the commit counts only if its segments are all there.
      if !finished.segmentsWereDurable, end.record > durable, !writerIsAlive,
        try !segmentsOpen(of: finished, on: catalog)
      {
        stop = "commit \(finished.number) names segments that were lost"
        break
      }
      catalog.apply(finished)
      catalog.slabsToSynchronize.formUnion(finished.extents().map(\.slab))
      accepted = end
      accepted.commit = finished.number
    }
    if !commit.isEmpty, stop == nil { stop = "commit \(catalog.commit + 1) is not complete" }
    if let stop, !writerIsAlive {
      catalog.findings.append(
        Finding(.note, .tornTail, "the container was not closed; dropped what was under way (\(stop))"))
    }
    return accepted
  }

  private enum Step {
    case record(JournalRecord, JournalEnd)
    case bad(String)
    case altered
  }

  private func next(after last: JournalEnd, in link: Link, key: borrowing SecretKey) throws -> Step {
    switch try read(link.file, link.id, at: JournalFrame.alignedUp(last.offset), key: key) {
    case .good(let number, let previous, let payload, let authenticator, let end):
      guard number == last.record + 1, previous == last.authenticator else { return .altered }
      do {
        let record = try JournalRecord(payload)
        return .record(
          record, JournalEnd(record: number, offset: end, authenticator: authenticator, commit: record.commit)
        )
      } catch {
        throw ContainerError(.journalDamaged, detail: "record \(number): \(error.what)")
      }
    case .unusable(let reason): return .bad(reason)
    case .altered: return .altered
    }
  }

  /// The greatest *durable through* of the authentic records after a bad one; 0 when there are none.
  private func lastDurableRecord(
    in link: Link, after last: JournalEnd, key: borrowing SecretKey
  ) throws -> UInt64 {
    var durable: UInt64 = 0
    var offset = JournalFrame.alignedUp(last.offset) + JournalFrame.alignment
    let size = try link.file.size()
    while offset < size {
      if case .good(let number, _, let payload, _, _) = try read(link.file, link.id, at: offset, key: key),
        number > last.record, let record = try? JournalRecord(payload)
      {
        durable = max(durable, record.durableThrough)
      }
      offset += JournalFrame.alignment
    }
    return durable
  }

  private func hasBytes(_ file: any BlockFile, at offset: UInt64) throws(IOFailure) -> Bool {
    try file.size() > offset
  }

  private func segmentsOpen(of commit: FinishedCommit, on catalog: LoadedCatalog) throws -> Bool {
    let context = WorkerContext(ciphers.backend)
    let slabs = SlabStore(io: io, counters: [:], nextSlab: 0, startsWriteback: false)
    for (file, extents) in Dictionary(grouping: commit.fileExtents(), by: \.file) {
      let key = CatalogKey.inode(file)
      let changed = commit.changes.last { $0.key == key }
      guard let bytes = try changed.map({ $0.value }) ?? catalog.snapshot.value(key),
        let inode = try? Inode(bytes)
      else {
        continue
      }
      // What the file had before was durable once: that it is damaged now says nothing about this commit.
      let inodeBefore = try catalog.snapshot.value(key).flatMap { try? Inode($0) }
      let before = try inodeBefore.map { try Set(catalog.snapshot.extents(file, $0)) } ?? []
      for (_, extent) in extents where !before.contains(extent) {
        let problem = try verifyRun(
          extent, key: keys.fileKey(file, epoch: inode.epoch, secret: inode.secret), slabs: slabs,
          context: context)
        if problem != nil { return false }
      }
    }
    return try pinnedSegmentsOpen(of: commit, on: catalog, slabs, context)
  }

  /// The same for versions that the commit pins and has no file for: they were replaced in the same commit.
  private func pinnedSegmentsOpen(
    of commit: FinishedCommit, on catalog: LoadedCatalog, _ slabs: SlabStore, _ context: WorkerContext
  ) throws -> Bool {
    let pinned = commit.pinnedExtents()
    guard !pinned.isEmpty else { return true }
    let named = Dictionary(grouping: commit.fileExtents(), by: \.file).mapValues { extents in
      ExtentMap(checked: extents.map(\.extent).sorted { $0.start < $1.start })
    }
    for (pin, extents) in pinned {
      let inodeBefore = try catalog.snapshot.value(.inode(pin.file)).flatMap { try? Inode($0) }
      let before = try inodeBefore.map { try catalog.snapshot.extents(pin.file, $0) } ?? []
      var new = ExtentMap(checked: before).parted(extents).unknown
      if let named = named[pin.file] { new = named.parted(new).unknown }
      for extent in new {
        let problem = try verifyRun(
          extent, key: keys.fileKey(pin.file, epoch: pin.inode.epoch, secret: pin.inode.secret),
          slabs: slabs, context: context)
        if problem != nil { return false }
      }
    }
    return true
  }
}

/// Opens every segment of a run; what is wrong with the first that does not open, or nil.
func verifyRun(
  _ run: Extent, key: borrowing FileKey, slabs: SlabStore, context: WorkerContext
) throws -> SegmentError? {
  let writerKey = try key.writerKey(session: run.writeNumber.session)
  var skipped = 0
  while skipped < run.count {
    let part = run.slice(
      skipping: skipped, count: min(Int(run.count) - skipped, SegmentLayout.segmentsPerUnit))
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<part.storedByteCount])
    let count = try slabs.read(part.slab, part.offset, into: stored)
    do throws(SegmentError) {
      try context.cipher.check(
        run: part, stored: UnsafeRawBufferPointer(rebasing: stored[0..<count]), key: writerKey)
    } catch {
      return error
    }
    skipped += Int(part.count)
  }
  return nil
}

/// Changes of one commit, gathered from its records.
struct FinishedCommit {
  var number: UInt64
  var changes: [CatalogChange]
  var segmentsWereDurable: Bool

  func fileExtents() -> [(file: UInt64, extent: Extent)] {
    changes.compactMap { change in
      guard let value = change.value else { return nil }
      switch change.key.kind {
      case .inode:
        guard let file = change.key.number(at: 1), let inode = try? Inode(value) else { return nil }
        return inode.firstExtent.map { (file, $0) }
      case .extent:
        guard let file = change.key.number(at: 1), let extent = try? Extent(key: change.key, value: value)
        else { return nil }
        return (file, extent)
      default: return nil
      }
    }
  }

  /// Of versions that the commit pins.
  func pinnedExtents() -> [(pin: PinnedFile, extents: [Extent])] {
    var found: [(pin: PinnedFile, extents: [Extent])] = []
    var position: [Pin: Int] = [:]
    // In the order of keys, and those of type `71` come first.
    for change in changes {
      guard let value = change.value, let pin = change.key.pin(at: 1) else { continue }
      switch change.key.kind {
      case .pinned:
        guard let file = try? PinnedFile(value) else { continue }
        position[pin] = found.count
        found.append((file, file.inode.firstExtent.map { [$0] } ?? []))
      case .pinnedExtent:
        guard let index = position[pin], let extent = try? Extent(pinnedKey: change.key, value: value) else {
          continue
        }
        found[index].extents.append(extent)
      default: continue
      }
    }
    return found
  }

  func extents() -> [Extent] { fileExtents().map(\.extent) + pinnedExtents().flatMap(\.extents) }
}

private struct PendingCommit {
  private var number: UInt64 = 0
  private var changes: [CatalogChange] = []
  private(set) var isEmpty = true

  /// The whole commit when this was its last record.
  mutating func add(_ record: JournalRecord, after last: UInt64) throws -> FinishedCommit? {
    guard record.commit == last + 1, isEmpty || record.commit == number else {
      throw ContainerError(.journalDamaged, detail: "commit \(record.commit) follows commit \(last)")
    }
    isEmpty = false
    number = record.commit
    changes += record.changes
    guard record.isLastOfCommit else { return nil }
    defer {
      changes = []
      isEmpty = true
    }
    return FinishedCommit(number: number, changes: changes, segmentsWereDurable: record.segmentsWereDurable)
  }
}

extension LoadedCatalog {
  mutating func apply(_ commit: FinishedCommit) {
    for change in commit.changes { snapshot.overlay.put(change.key, change.value) }
    self.commit = commit.number
  }
}
