public struct SendOptions: Sendable {
  /// The check interval in segments: one segment of so many is opened again after sealing and
  /// compared with its plaintext; 0 checks none, 1 checks all.
  public var checkInterval = Arrival.checkInterval
  /// The request's id in the receiver's ledger, 1 to 255 bytes. A second request with the same id
  /// from the same sender is not delivered again. Without an id nothing is written into the ledger.
  public var requestID: String?

  public init() {}
}
