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
  /// in both copies; what is whole in one copy is in both, then. Also with it, if that part is all of
  /// the oldest table.
  func checkForRepair(acceptsLoss: Bool) throws -> RepairReport {
    let uneven = try store.namingPath(store.place) {
      try checkSuperblock()
      return try store.withCheckingLoader { try $0.checkCopies() }
    }
    let kinds = Set(store.log.findings.filter { $0.severity == .damage }.map(\.kind))
    let lossOfTable = store.log.findings.first { $0.kind == .tableDamaged }
    let unread = store.log.findings.first { $0.kind == .unreadable }
    // Nothing stands in for the oldest table, and the slabs that it alone names would be removed.
    let lacksOldest = try store.withSnapshot { $0.tables.last?.loss != nil }
    if !acceptsLoss || lacksOldest, let loss = lossOfTable ?? unread {
      try level(uneven)
      if lossOfTable != nil {
        throw ContainerError(.tableDamaged, path: store.place, detail: loss.detail)
      }
      let cause = IOFailure("read", "the catalog", errno: EIO)
      throw ContainerError(.ioFailed, path: store.place, detail: loss.detail, cause: cause)
    }
    return RepairReport(
      findings: store.log.findings, wasWritten: !kinds.isEmpty,
      hasLoss: !kinds.isDisjoint(with: [.journalDamaged, .tableDamaged, .unreadable]))
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
      return try salvage.run(slabs: sizes)
    }
  }
}
