extension Verification {
  /// The report of a repair that is still to be made: the findings, and whether the catalog has to
  /// be written anew. Throws `tableDamaged` if a part of the catalog is damaged in both copies.
  func checkForRepair() throws -> RepairReport {
    try store.namingPath(store.place) {
      try checkSuperblock()
      try store.withCheckingLoader { try $0.checkCopies() }
    }
    let kinds = Set(store.log.findings.filter { $0.severity == .damage }.map(\.kind))
    if kinds.contains(.tableDamaged) {
      throw ContainerError(
        .tableDamaged, path: store.place,
        detail: store.log.findings.first { $0.kind == .tableDamaged }?.detail)
    }
    return RepairReport(
      findings: store.log.findings, wasWritten: !kinds.isEmpty, hasLoss: kinds.contains(.journalDamaged))
  }
}
