public import Foundation
import Locks
import ServiceWire
public import SodiumPrimitives

/// A request that came, to be replied to once at most.
public final class IncomingRequest: ServiceMessage {
  /// The id of the request, which is the same at both sides.
  public let id: RequestID
  /// The app that sent it.
  public let sender: ApplicationID
  /// The service that is called.
  public let service: ServiceIdentifier
  /// The version of the service that is called.
  public let version: ServiceVersion
  /// The name of the method that is called.
  public let method: String
  /// The params; nil: the request has none.
  public let params: ServiceValue?
  /// Paths in the inbox of the provider's container.
  public let attachments: [String]
  /// The app that the sender wants in front. The sender's runtime sees to it.
  public let foreground: ForegroundPreference
  /// The sender was in front when it sent the request, and passes the front on.
  let passesFront: Bool
  /// It may have been given to a handler before, in an earlier process, where the handler did not return.
  public let isRedelivered: Bool
  /// It may have come before: its sender's container was put back to an older copy, or is a copy (``Rollback``).
  public let mayBeRepeated: Bool
  /// What it was admitted to; nil for one of an earlier process whose service is not offered.
  let offer: Offer?
  let runtime: Runtime

  private struct Fields {
    var arrival: UInt64?
    var hasHandlerReturned = false
    var isCancelled = false
    var task: Task<Void, Never>?
    var cancellation: (@Sendable () -> Void)?
    var frontCount: UInt64?
    var replyStream: AsyncStream<ReplyEvent>?
    var replyContinuation: AsyncStream<ReplyEvent>.Continuation?
    var hasReplyEnded = false
    /// The tasks that wait until the request is in the queue; nil while it is not on the way there.
    var keepWaiters: [CheckedContinuation<Void, Never>]?
  }

  private let guarded: Guarded<Fields>
  let replyMeter = TransferMeter()

  init(
    _ wire: WireRequest, _ id: Identifier, from sender: ApplicationID, _ key: ServiceKey, _ offer: Offer?,
    params: ServiceValue?, attachments: [String], arrival: UInt64? = nil, isRedelivered: Bool = false,
    mayBeRepeated: Bool = false, _ runtime: Runtime
  ) {
    self.id = id
    self.sender = sender
    service = key.service
    version = key.version
    method = wire.method
    self.params = params
    self.attachments = attachments
    foreground = ForegroundPreference(wire.foreground)
    passesFront = wire.passesFront
    guarded = Guarded(Fields(arrival: arrival))
    self.isRedelivered = isRedelivered
    self.mayBeRepeated = mayBeRepeated
    self.offer = offer
    self.runtime = runtime
  }

  deinit { endReply(nil) }

  /// Removes the request's files from the inbox. Nothing else removes them. Files that are gone already are ignored; if the request is redelivered,
  /// its files are missing. Throws the container's errors.
  public func removeAttachments() async throws { try await runtime.removeMessage(with: attachments) }

  // MARK: Replying

  /// Keeps a request without files for a reply at any later time: by this object, or by ``AppServices/reply(_:attachments:foreground:to:from:)`` in this process or
  /// another one. When this returns it is on the disk, and its consumer waits also while this app does not run. One with files
  /// is kept anyway. Throws `general` when it was replied to, or is being, and for a front request, and `noSpace`.
  public func keep() async throws { try await keepForReply() }

  /// Sends the reply; returns when it was taken. `attachments` are paths in the provider's container.
  ///
  /// Throws `general` for a second reply and for one to a front request, `invalidParams` with the path, `attachmentNotFound`.
  public func reply(
    _ params: ServiceValue? = nil, attachments: [String] = [], foreground: ForegroundPreference = .none
  ) async throws {
    try await send(.success((params, attachments)), foreground)
  }

  /// Sends an error as the reply. Its domain is the service's id, whatever it says.
  public func reply(error: ServiceReplyError, foreground: ForegroundPreference = .none) async throws {
    try await send(.failure(error), foreground)
  }

  /// Lets the consumer know that no reply comes. Throws `general` when there was one.
  public func endWithoutReply() throws {
    let refused = runtime.performAndWait { core in
      core.requests(holding: self).map { $0.endWithoutReply(self) } ?? PeerRequests.cannotReply
    }
    if let refused { throw refused }
  }

  /// What happens to the reply, from the first use of this on: what a provider object hears with its `didStartSending` and so on. Ends with the reply, when there
  /// will be none, when these services stop, and when nobody holds this object any more. One stream: events go to one reader. Of a reply by the request's id, and one of an earlier process, ``AppServices/onOutboxEnd(_:)`` tells.
  public var replyEvents: AsyncStream<ReplyEvent> {
    guarded.withLock { guarded in
      if let stream = guarded.replyStream { return stream }
      let (stream, continuation) = AsyncStream<ReplyEvent>.makeStream()
      if guarded.hasReplyEnded { continuation.finish() }
      (guarded.replyStream, guarded.replyContinuation) = (stream, continuation)
      return stream
    }
  }

  /// How far the files of the reply are, in all and the one that is under way. Those of a reply of an earlier process are in ``AppServices/outbox()``.
  public var replyTransfer: TransferProgress { replyMeter.transfer }

  /// The same as Foundation has it, in bytes, with the files in its `userInfo`; indeterminate until there is a reply with files. Cancelling it takes such a
  /// reply back unless the consumer has it already, also one that is given later.
  public var replyProgress: Progress {
    replyMeter.progress(hasFiles: true) { [weak runtime, id, sender] in
      runtime?.perform(with: sender) { $0.outbox.cancelReply(to: id) }
    }
  }

  func tell(_ event: ReplyEvent) { guarded.withLock { $0.replyContinuation }?.yield(event) }

  /// Only the first end counts; nil: there is no reply.
  func endReply(_ event: ReplyEvent?) {
    let continuation = guarded.withLock { guarded in
      guarded.hasReplyEnded = true
      return guarded.replyContinuation.take()
    }
    if let event { continuation?.yield(event) }
    continuation?.finish()
  }

  /// How often this app had come to front when the request came that may pass the front to it; nil for any other request.
  var frontCount: UInt64? {
    get { guarded.withLock { $0.frontCount } }
    set { guarded.withLock { $0.frontCount = newValue } }
  }

  // MARK: In the queue of the container

  /// Its number there; nil for a request that came without files and is not kept.
  var arrival: UInt64? { guarded.withLock { $0.arrival } }

  var hasHandlerReturned: Bool { guarded.withLock { $0.hasHandlerReturned } }

  /// Returns the number in the queue.
  func setHandlerReturned() -> UInt64? {
    guarded.withLock {
      $0.hasHandlerReturned = true
      return $0.arrival
    }
  }

  /// Returns whether the handler has returned.
  func setArrival(_ arrival: UInt64) -> Bool {
    guarded.withLock {
      $0.arrival = arrival
      return $0.hasHandlerReturned
    }
  }

  /// It is on the way into the queue.
  var isBeingKept: Bool { guarded.withLock { $0.keepWaiters != nil } }

  func beginKeeping() { guarded.withLock { $0.keepWaiters = [] } }

  /// It is there, or cannot be kept.
  func endKeeping() {
    for waiter in guarded.withLock({ $0.keepWaiters.take() }) ?? [] { waiter.resume() }
  }

  /// Returns when it is not on the way into the queue.
  func whenKept() async {
    await withCheckedContinuation { waiter in
      let waits = guarded.withLock { guarded in
        guarded.keepWaiters?.append(waiter)
        return guarded.keepWaiters != nil
      }
      if !waits { waiter.resume() }
    }
  }

  // MARK: Cancelling

  /// The consumer does not want the result any more. A reply may still be sent.
  public var isCancelled: Bool { guarded.withLock { $0.isCancelled } }

  /// Calls `handler` when the consumer does not want the result any more; at once when that is so already. One handler.
  public func onCancel(_ handler: @escaping @Sendable () -> Void) {
    let isCancelled = guarded.withLock {
      if !$0.isCancelled { $0.cancellation = handler }
      return $0.isCancelled
    }
    if isCancelled { handler() }
  }

  func cancel() {
    let (task, handler) = guarded.withLock {
      $0.isCancelled = true
      return ($0.task.take(), $0.cancellation.take())
    }
    task?.cancel()
    handler?()
  }

  /// The task that answers it, which ends early when the request is cancelled.
  func run(_ task: Task<Void, Never>) {
    let isCancelled = guarded.withLock {
      if !$0.isCancelled { $0.task = task }
      return $0.isCancelled
    }
    if isCancelled { task.cancel() }
  }
}

extension ForegroundPreference {
  init(_ wire: WireForeground) {
    switch wire {
    case .me: self = .me
    case .peer: self = .peer
    case .noPreference, .UNRECOGNIZED: self = .none
    }
  }

  var wire: WireForeground {
    switch self {
    case .me: .me
    case .peer: .peer
    case .none: .noPreference
    }
  }
}
