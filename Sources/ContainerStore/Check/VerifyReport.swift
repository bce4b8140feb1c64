/// The result of a verification.
public struct VerifyReport: Sendable {
  public var findings: [Finding]
  public var fileCount = 0
  /// Plaintext bytes of the files that were read.
  public var byteCount: UInt64 = 0

  public var hasDamage: Bool { findings.contains { $0.severity == .damage } }
}

extension VerifyReport {
  /// Adds the error that ended a check. Several checks may meet the same damaged block; it is added
  /// once.
  mutating func add(_ error: ContainerError) {
    guard let kind = error.findingKind, !(kind == .tableDamaged && findings.contains { $0.kind == kind })
    else {
      return
    }
    findings.append(Finding(.damage, kind, error.description))
  }
}

extension [Finding] {
  /// Limits the report of a catalog that is wrong throughout to its first errors.
  private static var inconsistencyCountMax: Int { 1000 }

  mutating func addInconsistency(_ detail: String) {
    guard count < Self.inconsistencyCountMax else { return }
    append(Finding(.damage, .catalogInconsistent, detail))
  }
}
