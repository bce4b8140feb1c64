public struct SendOptions: Sendable {
  /// The check interval in segments: one segment of so many is opened again after sealing and
  /// compared with its plaintext; 0 checks none, 1 checks all.
  public var checkInterval = Arrival.checkInterval
  /// The request's id in the receiver's ledger. A second request with the same id from the same
  /// sender is not delivered again. Nil stands for a random id.
  public var requestID: String?

  public init() {}
}
