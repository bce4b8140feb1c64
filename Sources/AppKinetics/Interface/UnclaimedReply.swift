import ServiceWire

/// A reply to a request that an earlier process of this app sent, or to one that it has given up.
public struct UnclaimedReply: Sendable {
  /// The request that is answered.
  public var request: RequestID
  /// The provider.
  public var sender: ApplicationID
  /// The reply. It fails with a `ServiceReplyError` if the provider's app answered with an error, whose domain is nil because the service is no
  /// longer known, and with a `ServicesError` if the reply cannot be read.
  public var result: Result<ServiceReply, any Error>
  /// Paths in the inbox of the files that came with it, whatever it is.
  public var attachments: [String]
  /// It may have been given to a handler before, in an earlier process, where the handler did not return.
  public var isRedelivered: Bool
  /// It may have come before: its sender's container was put back to an older copy, or is a copy (``Rollback``).
  public var mayBeRepeated: Bool
}

/// Takes a reply that no call awaits any more. It is not called while the app is locked or suspended.
/// The reply stays in the container until the handler has returned.
public typealias UnclaimedReplyHandler = @Sendable (UnclaimedReply) async -> Void
