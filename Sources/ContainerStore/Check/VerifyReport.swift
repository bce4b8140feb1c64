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
  /// once. Throws an error that is no damage.
  mutating func add(_ thrown: any Error) throws {
    let found = (thrown as? IOFailure).map(ContainerError.from) ?? thrown as? ContainerError
    guard let error = found, let kind = error.findingKind else { throw thrown }
    guard !(kind == .tableDamaged && findings.contains { $0.kind == kind }) else { return }
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
