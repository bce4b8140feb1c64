import Locks

/// The findings of one opening, without duplicates. Findings beyond the first 1000 are dropped.
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
