import EncryptedFile
import SodiumPrimitives

/// What a repair found, and whether anything is left to be wanted.
public struct RepairReport: Sendable {
  /// As they were before the repair.
  public var findings: [Finding]
  /// The catalog was written anew.
  public var wasWritten: Bool
  /// Something of the catalog was whole in neither copy, and is lost.
  public var hasLoss: Bool
}

extension Container {
  /// Writes the catalog anew, in two copies, when one of its copies, or of those of the superblock, is damaged, or an older state was
  /// accepted.
  ///
  /// Where both copies of a part are damaged it throws `tableDamaged`, `journalDamaged` or `journalAltered` and changes nothing:
  /// everything else can be read, and copied to a new container. With `acceptsLoss` commits from a damaged record on are given up.
  /// What is damaged in files stays damaged; ``verify(control:)`` tells. Throws what opening for writing throws.
  public static func repair(
    at path: String, credential: borrowing Credential, options: Options = Options(), acceptsLoss: Bool = false
  ) throws -> RepairReport {
    try repair(io: PosixBlockIO(path), credential: credential, options: options, acceptsLoss: acceptsLoss)
  }

  package static func repair(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options(), acceptsLoss: Bool = false
  ) throws -> RepairReport {
    var options = options
    options.salvages = acceptsLoss
    // Nothing is written before it is known what is damaged.
    let reader = try open(io: io, credential: credential, mode: .readOnly, options: options)
    let report = try reader.checkForRepair()
    try reader.close()
    guard report.wasWritten else { return report }
    options.salvages = report.hasLoss
    let container = try open(io: io, credential: credential, options: options)
    container.flushing.withLock { $0.mustRewriteCatalog = true }
    try container.close()
    return report
  }

  private func checkForRepair() throws -> RepairReport {
    try namingPath(io.place) {
      try checkSuperblock()
      try withCheckingLoader { try $0.checkCopies() }
    }
    let kinds = Set(log.findings.filter { $0.severity == .damage }.map(\.kind))
    if kinds.contains(.tableDamaged) {
      throw ContainerError(
        .tableDamaged, path: io.place, detail: log.findings.first { $0.kind == .tableDamaged }?.detail)
    }
    return RepairReport(
      findings: log.findings, wasWritten: !kinds.isEmpty, hasLoss: kinds.contains(.journalDamaged))
  }
}
