/// Sums of sizes that files, containers and other apps state: each may be as large as there are numbers, and so the sum is limited to the
/// largest one.
extension UInt64 {
  package mutating func addSaturating(_ other: UInt64) {
    let (sum, overflows) = addingReportingOverflow(other)
    self = overflows ? .max : sum
  }
}

extension Sequence {
  package func saturatingSum(_ size: (Element) -> UInt64) -> UInt64 {
    reduce(into: 0) { $0.addSaturating(size($1)) }
  }
}
