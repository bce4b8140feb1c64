#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension Verification {
  /// The report of a repair that is still to be made: the findings, and whether the catalog has to
  /// be written anew. Without `acceptsLoss`, throws `tableDamaged` if a part of the catalog is damaged
  /// in both copies; what is whole in one copy is in both, then.
  func checkForRepair(acceptsLoss: Bool) throws -> RepairReport {
    let uneven = try store.namingPath(store.place) {
      try checkSuperblock()
      return try store.withCheckingLoader { try $0.checkCopies() }
    }
    let kinds = Set(store.log.findings.filter { $0.severity == .damage }.map(\.kind))
    if !acceptsLoss, let loss {
      try level(uneven)
      throw loss
    }
    return RepairReport(
      findings: store.log.findings, wasWritten: !kinds.isEmpty,
      hasLoss: !kinds.isDisjoint(with: [.journalDamaged, .tableDamaged, .unreadable]))
  }

  /// The error for what is lost of tables: one of the system where it merely does not read, and all that it reads is whole.
  private var loss: ContainerError? {
    let findings = store.log.findings
    if let lost = findings.first(where: { $0.kind == .tableDamaged }) {
      return ContainerError(.tableDamaged, path: store.place, detail: lost.detail)
    }
    guard let unread = findings.first(where: { $0.kind == .unreadable }) else { return nil }
    let cause = IOFailure("read", "the catalog", errno: EIO)
    return ContainerError(.ioFailed, path: store.place, detail: unread.detail, cause: cause)
  }

  /// Writes the other copy of blocks that one copy has. The tables stay the same: nothing else knows.
  private func level(_ blocks: [UnevenRecord]) throws {
    guard !blocks.isEmpty else { return }
    try store.namingPath(store.place) {
      let lock = try ContainerLock.take(store.io, mode: .readWrite)
      defer { lock.unlock(.writer) }
      try Recovery.level(store.io, blocks)
      for name in Set(blocks.map(\.torn)).sorted() {
        try store.io.openIfReadable(name, .readWrite)?.synchronize()
      }
    }
  }

  /// Throws `tableDamaged`, or what the system said, when all of the oldest table is lost: nothing stands in for it, and what it named
  /// would be given up. The table that a container is made with names nothing.
  private func requireRecords(of oldest: TableFile?) throws {
    let isFirst = try store.withSuperblock { _, body, _ in body.completeGeneration.commit == 0 }
    guard !isFirst, let oldest else { return }
    var position = try oldest.position(of: CatalogKey(bytes: []), .salvaging)
    guard try oldest.next(&position) == nil else { return }
    if let loss, loss.code == .ioFailed { throw loss }
    throw ContainerError(
      .tableDamaged, path: store.place,
      detail: "all of the oldest table is lost, and with it what may name most files")
  }

  /// The catalog without what is lost of tables in both copies; nil when nothing is. Findings are
  /// added to the report.
  func salvaged(_ report: inout RepairReport) throws -> ChangeMap? {
    guard report.findings.contains(where: { $0.kind == .tableDamaged || $0.kind == .unreadable }) else {
      return nil
    }
    var sizes: [UInt32: UInt64] = [:]
    for slab in try store.io.readableFileNames(in: "slab").compactMap(SlabStore.number) {
      sizes[slab] = try store.io.openIfReadable(SlabStore.name(slab), .read)?.size()
    }
    return try store.withSnapshot { records in
      var salvage = Salvage(records)
      defer { report.findings += salvage.findings }
      try requireRecords(of: records.tables.last)
      return try salvage.run(slabs: sizes)
    }
  }
}
