/// The result of a delivery to an inbox.
public struct Receipt: Sendable {
  public struct File: Sendable {
    /// Path in the sender's container.
    public var originalPath: String
    /// Path in the receiver's container.
    public var path: String
    public var size: UInt64
  }

  /// The id that the sender gave the request.
  public var requestID: String?
  /// The message's own directory in the inbox; the receiver deletes it after use.
  public var directory: String
  public var files: [File]
  public var byteCount: UInt64
  /// Whether the receiver's ledger already had the request. Then nothing was sent again, and
  /// `files` is empty.
  public var wasDeliveredBefore: Bool
}
