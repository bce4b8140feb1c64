extension Difference {
  /// Everything in which the two differ on Linux, in the order of the cases. Documentation/FILES.md holds the same lines.
  static let all: [Difference] = []
}
