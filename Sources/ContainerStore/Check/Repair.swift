#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension Verification {
  /// The report of a repair that is still to be made: the findings, and whether the catalog has to
  /// be written anew. Throws `tableDamaged` if a part of the catalog is damaged in both copies.
  func checkForRepair() throws -> RepairReport {
    try store.namingPath(store.place) {
      try checkSuperblock()
      try store.withCheckingLoader { try $0.checkCopies() }
    }
    let kinds = Set(store.log.findings.filter { $0.severity == .damage }.map(\.kind))
    if let loss = store.log.findings.first(where: { $0.kind == .tableDamaged }) {
      throw ContainerError(.tableDamaged, path: store.place, detail: loss.detail)
    }
    if let loss = store.log.findings.first(where: { $0.kind == .unreadable }) {
      let cause = IOFailure("read", "the catalog", errno: EIO)
      throw ContainerError(.ioFailed, path: store.place, detail: loss.detail, cause: cause)
    }
    return RepairReport(
      findings: store.log.findings, wasWritten: !kinds.isEmpty, hasLoss: kinds.contains(.journalDamaged))
  }
}
