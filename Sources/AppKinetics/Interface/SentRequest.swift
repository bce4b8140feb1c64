public import Foundation
import Locks
import ServiceWire
public import SodiumPrimitives

/// A request on its way, and what became of it.
public final class SentRequest: Sendable {
  /// The id of the request, which is the same at both sides.
  public let id: RequestID
  /// The app that the request was sent to.
  public let application: ApplicationID
  /// The request as it was sent.
  public let request: ServiceRequest

  /// How far the request is. The last five states are final.
  public enum Status: Sendable, Hashable {
    /// For a channel to the app, for its unlocking, or for room.
    case waiting
    /// The request was written to the channel.
    case sent
    /// The receiver has its own copy of everything; its reply may come.
    case delivered
    /// A reply came; it may be an error of the provider's app, or break its definition.
    case replied
    /// The provider has handled the request and does not reply.
    case endedWithoutReply
    /// The request was not handled; the error says why.
    case refused
    /// One of the two sides has cancelled the request.
    case cancelled
    /// Whether the request was handled is not known: the connection broke, or this side cannot go on with it or write down its end.
    case lost
  }

  private struct Fields {
    var status = Status.waiting
    var outcome: Outcome?
    /// Nil until it is known whether the request was taken.
    var acceptance: Result<Void, ServicesError>?
    var waitingForAcceptance: [CheckedContinuation<Void, any Error>] = []
    var waitingForDelivery: [CheckedContinuation<Void, any Error>] = []
    var waitingForOutcome: [CheckedContinuation<ServiceReply?, any Error>] = []
    var waitingForCancellation: [CheckedContinuation<Bool, Never>] = []
    /// Until somebody wants to see them.
    var events: [RequestEvent] = []
    var stream: AsyncStream<RequestEvent>?
    var continuation: AsyncStream<RequestEvent>.Continuation?
    var isReplyDelivered = false
    /// It has begun to wait for the receiver.
    var hasWaited = false
    /// The front was passed on, or the broker was asked for that.
    var hasUsedPreference = false
    var replyAttachments: [String] = []
  }

  private typealias Outcome = Result<ServiceReply?, any Error>

  private let guarded = Guarded(Fields())
  let meter = TransferMeter()
  private let runtime: Runtime

  init(_ id: Identifier, _ request: ServiceRequest, to application: ApplicationID, _ runtime: Runtime) {
    self.id = id
    self.application = application
    self.request = request
    self.runtime = runtime
  }

  // MARK: For the app

  /// How far the request is now.
  public var status: Status { guarded.withLock { $0.status } }

  /// Whether the definition that the request was given defines a reply; nil when it was given none.
  public var expectsReply: Bool? { try? request.definition?.definesReply(request.method) }

  /// What happens to it, in order, from its beginning; ends with the request. One stream: events go to one reader.
  public var events: AsyncStream<RequestEvent> {
    guarded.withLock { guarded in
      if let stream = guarded.stream { return stream }
      let (stream, continuation) = AsyncStream<RequestEvent>.makeStream()
      for event in guarded.events { continuation.yield(event) }
      if guarded.outcome != nil { continuation.finish() }
      guarded.events = []
      (guarded.stream, guarded.continuation) = (stream, continuation)
      return stream
    }
  }

  /// Bytes of the attachments, with the files in its `userInfo` (`fileTotalCountKey`, `fileCompletedCountKey`). A message without
  /// bytes gets one unit, completed, when the receiver has it. A report may show a moment after the event that it belongs to.
  /// It is no part of a current `Progress`. Cancelling it cancels the request.
  public var progress: Progress {
    meter.progress(hasFiles: !request.attachments.isEmpty) { [weak self] in
      guard let self else { return }
      runtime.cancel(self)
    }
  }

  /// How far its attachments are, in all and the one that is under way.
  public var transfer: TransferProgress { meter.transfer }

  /// Returns when the receiver has its own copies of params and attachments: the originals may change now. Throws what ``reply()`` throws when
  /// it does not come to that.
  public func delivered() async throws {
    try await withCheckedThrowingContinuation { continuation in
      let known: Result<Void, any Error>? = guarded.withLock {
        switch $0.status {
        case .delivered, .replied, .endedWithoutReply: return .success(())
        default: break
        }
        if case .failure(let error) = $0.outcome { return .failure(error) }
        $0.waitingForDelivery.append(continuation)
        return nil
      }
      if let known { continuation.resume(with: known) }
    }
  }

  /// The reply; nil when the provider ended without one. Throws `ServiceReplyError`, which is the provider's answer, and `ServicesError` for
  /// everything that kept the request from being answered. Cancelling the task does not cancel the request.
  public func reply() async throws -> ServiceReply? {
    try await withCheckedThrowingContinuation { continuation in
      let known: Outcome? = guarded.withLock {
        if $0.outcome == nil { $0.waitingForOutcome.append(continuation) }
        return $0.outcome
      }
      if let known { continuation.resume(with: known) }
    }
  }

  /// Paths in the inbox of the files that came with the reply, whatever the reply is: also one that is an error, or breaks its definition.
  public var replyAttachments: [String] { guarded.withLock { $0.replyAttachments } }

  /// Removes ``replyAttachments`` from the inbox. Nothing else removes them. Files that are gone already are ignored. Throws the container's
  /// errors.
  public func removeReplyAttachments() async throws {
    try await runtime.removeMessage(with: replyAttachments)
  }

  /// True: the provider's handler never saw it, nothing of it is left there, and no event but the end follows. False: it was too late, or has ended.
  @discardableResult
  public func cancel() async -> Bool {
    await withCheckedContinuation { continuation in
      let ended: Bool? = guarded.withLock {
        if $0.outcome != nil { return $0.status == .cancelled }
        $0.waitingForCancellation.append(continuation)
        return nil
      }
      if let ended { return continuation.resume(returning: ended) }
      runtime.cancel(self)
    }
  }

  // MARK: For the runtime

  private static let thrownBySend: Set<ServicesError.Code> = [
    .applicationNotFound, .brokerUnavailable, .limitExceeded, .approvalPending, .peerKeyChanged,
  ]

  /// Throws what `send` throws.
  func accepted() async throws {
    try await withCheckedThrowingContinuation { continuation in
      let known: Result<Void, ServicesError>? = guarded.withLock {
        if $0.acceptance == nil { $0.waitingForAcceptance.append(continuation) }
        return $0.acceptance
      }
      if let known { continuation.resume(with: known.mapError { $0 as any Error }) }
    }
  }

  func accept(_ result: Result<Void, ServicesError> = .success(())) {
    let waiting = guarded.withLock { guarded in
      guard guarded.acceptance == nil else { return [CheckedContinuation<Void, any Error>]() }
      guarded.acceptance = result
      defer { guarded.waitingForAcceptance = [] }
      return guarded.waitingForAcceptance
    }
    if waiting.isEmpty { return }
    for continuation in waiting { continuation.resume(with: result.mapError { $0 as any Error }) }
  }

  var hasEnded: Bool { guarded.withLock { $0.outcome != nil } }

  /// It goes through the outbox.
  var isDelivery: Bool { !request.attachments.isEmpty }

  /// If there is a reply, a delivery brings it.
  var isReplyDelivered: Bool { isDelivery || guarded.withLock { $0.isReplyDelivered } }
  func replyIsDelivered() { guarded.withLock { $0.isReplyDelivered = true } }

  /// The receiver has it, and its reply is a delivery.
  var awaitsDelivery: Bool { isReplyDelivered && status == .delivered }

  /// The reply brought these files. To be called before ``end(_:_:_:)``.
  func keep(_ files: [ArrivedFile]) { guarded.withLock { $0.replyAttachments = files.map(\.path) } }

  /// Whether the preference of its foreground takes effect now: when it begins to wait for the receiver, or else when the receiver has it.
  func usesPreference(isWaiting: Bool, isInFront: Bool) -> Bool {
    guarded.withLock {
      guard !$0.hasUsedPreference else { return false }
      // One that is being taken back needs no unlocked app.
      if isWaiting, $0.hasWaited || !$0.waitingForCancellation.isEmpty { return false }
      if isWaiting { $0.hasWaited = true }
      $0.hasUsedPreference = isInFront
      return isInFront
    }
  }

  /// Whether it is known that it was taken.
  var isAccepted: Bool { guarded.withLock { $0.acceptance != nil } }

  func tell(_ event: RequestEvent) {
    guarded.withLock { guarded in
      guard let continuation = guarded.continuation else { return guarded.events.append(event) }
      continuation.yield(event)
    }
  }

  func didSend() {
    guarded.withLock { if $0.status == .waiting { $0.status = .sent } }
    accept()
  }

  /// Returns whether that was not known before.
  func didDeliver() -> Bool {
    accept()
    let waiting: [CheckedContinuation<Void, any Error>]? = guarded.withLock { guarded in
      guard guarded.outcome == nil, guarded.status != .delivered else { return nil }
      guarded.status = .delivered
      defer { guarded.waitingForDelivery = [] }
      return guarded.waitingForDelivery
    }
    guard let waiting else { return false }
    meter.finish()
    tell(.didFinishSending)
    for continuation in waiting { continuation.resume() }
    return true
  }

  /// Whoever wants to cancel hears that it is too late.
  func didNotCancel() {
    let waiting = guarded.withLock { guarded in
      defer { guarded.waitingForCancellation = [] }
      return guarded.waitingForCancellation
    }
    if waiting.isEmpty { return }
    for continuation in waiting { continuation.resume(returning: false) }
  }

  func fail(_ status: Status, _ error: ServicesError) { end(status, .failure(error), .didFail(error)) }

  /// Only the first end counts.
  func end(_ status: Status, _ outcome: Result<ServiceReply?, any Error>, _ event: RequestEvent) {
    let ended: Fields? = guarded.withLock {
      guard $0.outcome == nil else { return nil }
      let before = $0
      $0.status = status
      $0.outcome = outcome
      $0.waitingForDelivery = []
      $0.waitingForOutcome = []
      $0.waitingForCancellation = []
      if let continuation = $0.continuation {
        continuation.yield(event)
        continuation.finish()
      } else {
        $0.events.append(event)
      }
      return before
    }
    guard let ended else { return }
    switch outcome {
    case .failure(let error as ServicesError)
    where ended.status == .waiting && Self.thrownBySend.contains(error.code):
      accept(.failure(error))
    default: accept()
    }
    for waiting in ended.waitingForDelivery { waiting.resume(with: outcome.map { _ in }) }
    for waiting in ended.waitingForOutcome { waiting.resume(with: outcome) }
    for waiting in ended.waitingForCancellation { waiting.resume(returning: status == .cancelled) }
  }
}
