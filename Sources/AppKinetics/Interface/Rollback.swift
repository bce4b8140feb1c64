/// A container that was put back to an older copy, or of which a copy is in use, as deliveries between
/// two apps show it (DELIVERY-PROTOCOL.md, "Numbers").
///
/// Nothing is lost on the way: what was reported as delivered was in the receiver's container. But what
/// a container forgot, its app does not have any more, and what its outbox had, it sends again.
public struct Rollback: Sendable, Hashable {
  public enum Side: Sendable, Hashable {
    case thisApp
    case otherApp
  }

  /// Whose container was put back.
  public let side: Side
  /// The other app.
  public let application: ApplicationID
  /// When a receiver was put back: so many messages were delivered to it and are not in its container any
  /// more. 0 when a sender was: some of its messages may come a second time
  /// (``IncomingRequest/mayBeRepeated``).
  public let missingCount: UInt64
}

extension AppServices {
  /// Containers of this app or of others of which a delivery shows that they were put back to an older
  /// copy, or that a copy of them is in use; each one as it is noticed, which may be more than once.
  /// Of one app at most one in ten seconds for each side, and the last 64 are kept for who does not read.
  /// Ends with ``stop()``.
  public var rollbacks: AsyncStream<Rollback> {
    AsyncStream(bufferingPolicy: .bufferingNewest(64)) { continuation in
      runtime.perform { $0.watch(\.rollbackWatchers, continuation) }
    }
  }
}
