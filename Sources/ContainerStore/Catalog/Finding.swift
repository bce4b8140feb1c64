/// Something that is not as it should be, found while a container is opened, read or verified.
public struct Finding: Sendable, Equatable {
  public enum Severity: String, Sendable {
    /// What a crash leaves; nothing that was durable is missing, as far as can be told.
    case note
    case damage
  }

  public enum Kind: String, Sendable {
    case superblockSlotTorn, superblockSlotOutdated, superblockSlotAltered
    case notClosed, tornTail, journalDamaged, journalAltered, tableDamaged, copyDamaged
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

/// What was found so far, each finding once.
final class FindingLog: Sendable {
  private static let countMax = 1000
  private let log = Guarded<[Finding]>([])

  var findings: [Finding] { log.withLock { $0 } }

  func add(_ finding: Finding) {
    log.withLock { log in
      if log.count < Self.countMax, !log.contains(finding) { log.append(finding) }
    }
  }
}
