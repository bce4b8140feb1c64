/// The result of an import or export.
public struct BulkReceipt: Sendable {
  public var fileCount: Int
  public var byteCount: UInt64
  /// Whether the native file system has refused to keep permissions or dates of an export.
  public var refusedAttributes = false
  /// Items of an export whose names are not UTF-8, and were written with %XX in them.
  public var escapedNameCount = 0
}
