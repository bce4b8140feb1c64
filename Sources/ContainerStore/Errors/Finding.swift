/// An irregularity that was found while a container was opened, read or verified.
public struct Finding: Sendable, Equatable {
  public enum Severity: String, Sendable {
    /// A trace of a crash. As far as can be determined, nothing that was durable is missing.
    case note
    case damage
  }

  public enum Kind: String, Sendable {
    case superblockSlotTorn, superblockSlotOutdated, superblockSlotAltered
    case notClosed, tornTail, journalDamaged, journalAltered, tableDamaged, copyDamaged
    case catalogInconsistent, segmentDamaged, unknownFile, rolledBack, unreadable, notLocked
  }

  public let severity: Severity
  public let kind: Kind
  /// A description without names from inside the container.
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
