/// The result of a repair.
public struct RepairReport: Sendable {
  /// The findings before the repair.
  public var findings: [Finding]
  /// Whether the catalog was written anew.
  public var wasWritten: Bool
  /// Whether a part of the catalog was damaged in both copies and is lost.
  public var hasLoss: Bool
}
