import Locks

/// The findings of one opening, without duplicates. Findings beyond the first 1000 are dropped.
final class FindingLog: Sendable {
  private static let countMax = 1000
  private let log = Guarded<[Finding]>([])

  var findings: [Finding] { log.withLock { $0 } }

  /// Whether slabs may be in use although no record that can be had names them.
  var tellsOfLostRecords: Bool {
    findings.contains { [.tableDamaged, .catalogInconsistent, .unreadable].contains($0.kind) }
  }

  func add(_ finding: Finding) {
    log.withLock { log in
      if log.count < Self.countMax, !log.contains(finding) { log.append(finding) }
    }
  }
}
