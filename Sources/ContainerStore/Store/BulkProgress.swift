/// The progress of a bulk operation.
public struct BulkProgress: Sendable, Equatable {
  /// Plaintext bytes that are processed.
  public var bytesDone: UInt64
  public var byteCount: UInt64
  /// Files that are processed completely.
  public var filesDone: Int
  public var fileCount: Int
  /// Seconds since the beginning.
  public var seconds: Double

  public var isFinished: Bool { filesDone == fileCount && bytesDone == byteCount }
  public var bytesPerSecond: Double { seconds > 0 ? Double(bytesDone) / seconds : 0 }
}
