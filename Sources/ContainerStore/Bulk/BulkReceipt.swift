/// The result of an import or export.
public struct BulkReceipt: Sendable {
  public var fileCount: Int
  public var byteCount: UInt64
  /// Whether the native file system has refused to keep permissions or dates of an export.
  public var refusedAttributes = false
}
