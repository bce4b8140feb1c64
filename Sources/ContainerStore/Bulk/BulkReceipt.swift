/// The result of an import or export.
public struct BulkReceipt: Sendable {
  public var fileCount: Int
  public var byteCount: UInt64
}
