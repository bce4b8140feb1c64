import ContainerStore

/// A finding as `info` and `verify` print it.
struct FindingDescription: Encodable {
  var severity: String
  var kind: String
  var detail: String
  var path: String?

  init(_ finding: Finding) {
    severity = finding.severity.rawValue
    kind = finding.kind.rawValue
    detail = finding.detail
    path = finding.path
  }

  /// `damage: /path: what (kind)`.
  var text: String {
    let place = path.map { PrintableText.of($0) + ": " } ?? ""
    return "\(severity): \(place)\(PrintableText.of(detail)) (\(kind))"
  }

  /// A line that names the command which mends one of the findings; empty when there is none.
  static func remedy(for findings: [FindingDescription]) -> String {
    let mended = [Finding.Kind.copyDamaged, .superblockSlotAltered].map(\.rawValue)
    return findings.contains { mended.contains($0.kind) }
      ? "  dynamics container repair writes damaged copies anew\n" : ""
  }
}
