/// A container that was put back to an older copy, or of which a copy is in use, as deliveries between
/// two apps show it (DELIVERY-PROTOCOL.md, "Numbers").
///
/// No delivery is lost on the way: each message that was reported as delivered was in the receiver's
/// container. But a container that was put back lacks what arrived since, and sends its old outbox again.
public struct Rollback: Sendable, Hashable {
  /// The app whose container was put back.
  public enum Side: Sendable, Hashable {
    /// The app of this ``AppServices``.
    case thisApp
    /// The app at the other end of the delivery.
    case otherApp
  }

  /// The consequence of a rollback.
  public enum Effect: Sendable, Hashable {
    /// A sender was put back: some of its messages may come a second time (``IncomingRequest/mayBeRepeated``).
    case repeats
    /// A receiver was put back: so many messages that were delivered to it are not in its container any more. Nil
    /// when it is this app: the number would be the other app's word.
    case lacks(UInt64?)
  }

  /// Whose container was put back. Of this app's own the other app says so, and nothing proves it; it sees then
  /// how many messages are missing.
  public let side: Side
  /// The other app.
  public let application: ApplicationID
  public let effect: Effect

  /// How many messages another app lacks; nil when that is not known.
  public var missingCount: UInt64? { if case .lacks(let count) = effect { count } else { nil } }
}

extension AppServices {
  /// Containers of this app or of others of which a delivery shows that they were put back to an older
  /// copy, or that a copy of them is in use; each one as it is noticed, which may be more than once.
  /// At most one in ten seconds is told for each app and side; a stream that nobody reads keeps the last 64.
  /// Ends with ``stop()``.
  public var rollbacks: AsyncStream<Rollback> {
    AsyncStream(bufferingPolicy: .bufferingNewest(64)) { continuation in
      runtime.perform { $0.watch(\.rollbackWatchers, continuation) }
    }
  }
}
