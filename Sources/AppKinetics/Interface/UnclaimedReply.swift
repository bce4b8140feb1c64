import ContainerStore
public import Foundation
public import SecureFiles
import ServiceWire

/// A reply to a request that an earlier process of this app sent, or to one that it has given up.
///
/// It is stored in the app's container, its files in the inbox, until the handler that ``AppServices/onUnclaimedReply(_:)`` was given has
/// returned, or ``AppServices/remove(_:)`` was called, and for ``AppServices/Options/stagingTime`` at most. Its files are the app's own
/// from the beginning and stay.
public struct UnclaimedReply: Sendable {
  /// The request that is answered.
  public var request: RequestID
  /// The provider.
  public var sender: ApplicationID
  /// When it arrived.
  public var date: Date
  /// The reply. It fails with a `ServiceReplyError` if the provider's app answered with an error, whose domain is nil because the service is no
  /// longer known, and with a `ServicesError` if the reply cannot be read.
  public var result: Result<ServiceReply, any Error>
  /// Paths in the inbox of the files that came with it, whatever it is.
  public var attachments: [String]
  /// It may have been given to a handler before, in an earlier process, where the handler did not return.
  public var isRedelivered: Bool
  /// It may have come before: its sender's container was put back to an older copy, or is a copy (``Rollback``).
  public var mayBeRepeated: Bool
  /// Its number in the queue.
  package let arrival: UInt64
  /// `/Inbox/<sender>/<time>`; nil without files.
  package let directory: String?
}

/// Takes a reply that no call awaits any more. It is not called while the app is locked or suspended.
/// The reply stays in the container until the handler has returned.
public typealias UnclaimedReplyHandler = @Sendable (UnclaimedReply) async -> Void

extension UnclaimedReply {
  init(
    _ message: ReadMessage, _ reply: WireReply, from sender: ApplicationID, isRedelivered: Bool
  ) {
    let queued = message.queued
    let files = queued.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }
    self.init(
      request: Identifier(reply.id), sender: sender,
      date: Date(timeIntervalSince1970: Double(queued.time) / 1e9),
      result: Result { try reply.content(message.value, files, from: sender, service: nil) },
      attachments: files.map(\.path), isRedelivered: isRedelivered,
      mayBeRepeated: message.offer?.mayBeRepeated ?? false,
      arrival: queued.arrival, directory: queued.directory)
  }

  /// The replies in a container that nobody has taken, oldest first. Throws the container's errors: `catalogDamaged` with the number of
  /// one that cannot be read.
  public static func all(in container: SecureContainer) throws -> [UnclaimedReply] {
    try all(in: container.store, skipping: nil)
  }

  /// The same without replies that are damaged, when somebody wants to hear of them.
  package static func all(in store: Container, skipping: ((ContainerError) -> Void)?) throws
    -> [UnclaimedReply]
  {
    let queue = try store.messageQueue(skipping: skipping)
    let unclaimed = try queue.unclaimed.map(\.arrival).compactMap { arrival in
      try skippingDamage("message \(arrival) in the queue", skipping) { try store.queuedMessage(arrival) }
        ?? nil
    }
    return (queue.unhandled + unclaimed).sorted { $0.arrival < $1.arrival }.compactMap { queued in
      let message = ReadMessage(queued)
      guard case .reply(let reply)? = message.offer?.message, message.offer?.requestID != nil,
        let sender = try? ApplicationID(queued.sender)
      else { return nil }
      return UnclaimedReply(message, reply, from: sender, isRedelivered: false)
    }
  }
}

extension AppServices {
  /// Sets the handler for replies that no call awaits: to requests of earlier processes, or given up ones. It is called on the callback queue,
  /// before ``start()`` returns or later, and not while the app is locked or suspended, and gets those first that came while there was
  /// none. A reply stays in the container until the handler has returned. Without a handler ``unclaimedReplies()`` lists them.
  public func onUnclaimedReply(_ handler: @escaping UnclaimedReplyHandler) {
    runtime.perform { $0.messages.handleUnclaimed(with: handler) }
  }

  /// The replies in the container that nobody has taken, oldest first. Also before ``start()`` and after ``stop()``. Throws the container's
  /// errors.
  public func unclaimedReplies() async throws -> [UnclaimedReply] {
    try await runtime.blocking { [runtime] in
      try UnclaimedReply.all(in: runtime.container.store, skipping: runtime.leavingOut)
    }
  }

  /// The app has taken a reply, or does not want it: it is listed no more, and no handler gets it. Its files stay in the inbox; see
  /// ``removeAttachments(_:)``. Throws the container's errors.
  public func remove(_ reply: UnclaimedReply) async throws {
    await runtime.result { $0.messages.remove(reply) }
    try await runtime.blocking { [runtime] in try runtime.container.store.endQueued(reply.arrival) }
  }
}
