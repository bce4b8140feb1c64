/// The result of a compaction.
public struct CompactionReceipt: Sendable {
  /// Slabs that were emptied, as far as readers allow.
  public var slabCount = 0
  /// Stored bytes that were moved.
  public var copiedByteCount: UInt64 = 0
  /// Bytes on the disk that are no longer needed. Readers that hold an older state keep these bytes
  /// until they close.
  public var freedByteCount: UInt64 = 0
  /// Findings about segments that did not open. These segments were left in place.
  public var findings: [Finding] = []
}
