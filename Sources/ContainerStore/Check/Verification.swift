import EncryptedFile
import SodiumPrimitives

/// Opens everything that is live, and checks that the catalog is consistent. Changes nothing.
struct Verification {
  let store: Store

  /// Reads both copies of the superblock and, in a container that is open for reading, both copies
  /// of everything else; a writer of this process would change those during the check. Findings go
  /// to the store's log.
  func checkCopies() throws {
    try checkSuperblock()
    if store.mode == .readOnly { try store.withCheckingLoader { _ = try $0.checkCopies() } }
  }

  /// The report on all records and segments of a snapshot with settled counters, including earlier
  /// findings.
  func report(_ records: CatalogSnapshot, _ control: BulkControl) throws -> VerifyReport {
    var records = records
    let isLost = store.log.findings.contains { $0.kind == .tableDamaged || $0.kind == .unreadable }
    if isLost { records.readMode = .salvaging }
    var report = try checkRecords(records, control)
    // An inconsistency that results from a lost block is not a finding of its own.
    if isLost { report.findings.removeAll { $0.kind == .catalogInconsistent && $0.path == nil } }
    if isLost { report.findings += try lostFiles(records) }
    let found = store.log.findings
    report.findings = found + report.findings.filter { !found.contains($0) }
    return report
  }

  private func checkRecords(_ records: CatalogSnapshot, _ control: BulkControl) throws -> VerifyReport {
    var report = VerifyReport(findings: [])
    var check = CatalogCheck(records)
    do {
      report.findings += try RecordCheck(records).findings()
      report.findings += try unknownFiles(records)
      try check.checkNames()
      try check.countFiles()
    } catch {
      try report.add(error)
    }
    let opening = SegmentCheck(
      store, fileCount: check.fileCount, byteCount: check.byteCount, control: control)
    let quiet = BulkControl(cancellation: control.cancellation)
    let pinnedOpening = SegmentCheck(
      store, fileCount: check.fileCount, byteCount: check.byteCount, control: quiet)
    // Paths of pinned versions with runs that the current files do not have.
    var pinnedPaths: [UInt64: String] = [:]
    do {
      try check.checkFiles { try opening.add($0) }
      var outbox = OutboxCheck(records)
      defer { report.findings += outbox.findings }
      var deliveries = DeliveryCheck(records)
      defer { report.findings += deliveries.findings }
      try outbox.check { pinned, extents in
        check.add(extents)
        guard !extents.isEmpty || !store.hasKey(ofEpoch: pinned.inode.epoch) else { return }
        try pinnedOpening.add(StoredFile(id: pinned.file, inode: pinned.inode, extents: extents))
        pinnedPaths[pinned.file] = pinned.pathText
      }
      try deliveries.check()
      try check.checkSlabs(try records.slabCounters(), size: store.slabs.size)
      try check.checkCounters()
    } catch {
      try report.add(error)
    }
    try opening.finish()
    try pinnedOpening.finish()
    for (file, detail) in pinnedOpening.damaged.sorted(by: { $0.key < $1.key }) {
      report.findings.append(
        Finding(
          .damage, .segmentDamaged, "a version that a message in the outbox needs: \(detail)",
          path: pinnedPaths[file]))
    }
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

  /// Files of which nothing but the name is left, and directories that have lost names.
  private func lostFiles(_ records: CatalogSnapshot) throws -> [Finding] {
    var findings: [Finding] = []
    _ = try records.readableTree(at: StorePath("/"), recursively: true) { error in
      findings.append(
        Finding(
          .damage, .tableDamaged, "its record, or names in it, are in a block that is lost", path: error.path)
      )
    }
    return findings
  }

  func checkSuperblock() throws {
    guard try !Superblock.unusedSlotIsAuthentic(of: store) else { return }
    store.log.add(
      Finding(.damage, .superblockSlotAltered, "the copy of the superblock that is not in use was altered"))
  }

  private func unknownFiles(_ records: CatalogSnapshot) throws -> [Finding] {
    guard store.mode == .readOnly else { return [] }
    var findings: [Finding] = []
    for files in try UnnamedFiles.find(in: store, slabs: try records.slabCounters().keys) {
      // A lost record may name what is left of slabs.
      if files.removableCount > 0, files.directory != "slab" || !store.log.tellsOfLostRecords {
        findings.append(
          Finding(
            .note, .unknownFile,
            """
            \(files.removableCount) file(s) in \(files.directory) that the catalog does not name; opening \
            for writing removes them
            """))
      }
      if files.foreignCount > 0 {
        findings.append(
          Finding(
            .note, .unknownFile,
            """
            \(files.foreignCount) file(s) in \(files.directory) that are not the container's; they are ignored
            """))
      }
    }
    return findings
  }
}
