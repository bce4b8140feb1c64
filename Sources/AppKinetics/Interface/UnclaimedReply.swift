import ServiceWire

/// A reply to a request that an earlier process of this app sent, or to one that it has given up.
public struct UnclaimedReply: Sendable {
  public var request: RequestID
  /// The provider.
  public var sender: ApplicationID
  /// What came, or the error that the provider's app answered with, whose domain is empty: which service it was is not known any more.
  public var result: Result<ServiceReply, ServiceReplyError>
  /// It may have been given to a handler before, in an earlier process, where the handler did not return.
  public var isRedelivered: Bool
  /// It may have come before: its sender's container was put back to an older copy, or is a copy (``Rollback``).
  public var mayBeRepeated: Bool
}

public typealias UnclaimedReplyHandler = @Sendable (UnclaimedReply) async -> Void
