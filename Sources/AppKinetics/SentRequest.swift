public import Foundation
import ServiceWire
import Synchronization

/// A request on its way, and what became of it.
public final class SentRequest: Sendable {
  public let id: RequestID
  public let application: ApplicationID
  public let request: ServiceRequest

  public enum Status: Sendable, Hashable {
    /// For a channel to the app, for its unlocking, or for room.
    case waiting
    case sent
    /// The receiver has its own copy of everything; its reply may come.
    case delivered
    case replied
    case endedWithoutReply
    case refused
    case cancelled
    /// The connection broke, and whether the request was handled is not known.
    case lost
  }

  private struct Guarded {
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
    var progress: Progress?
    var stage = Stage.submitted
    var isCancelWanted = false
    /// In the receiver's inbox, for a message that it did not take yet.
    var kept: (receiver: Runtime, paths: [String])?
  }

  /// On the way to the exchange. Requests without files are there at once, unless they come after one that has some.
  enum Stage: Sendable, Hashable {
    /// For a channel, which says where its files go.
    case waiting
    case copying
    /// Its files are there; those of a request before it are not.
    case ready(fileCount: Int)
    case submitted
  }

  private typealias Outcome = Result<ServiceReply?, any Error>

  private let guarded = Mutex(Guarded())
  private let runtime: Runtime

  init(_ id: WireID, _ request: ServiceRequest, to application: ApplicationID, _ runtime: Runtime) {
    self.id = RequestID(id)
    self.application = application
    self.request = request
    self.runtime = runtime
  }

  // MARK: For the app

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

  /// Bytes of the attachments, with the files in its `userInfo`. Cancelling it cancels a request whose files are not there yet or that was not
  /// sent; later it does nothing.
  public var progress: Progress {
    guarded.withLock { guarded in
      if let progress = guarded.progress { return progress }
      let progress = Progress(totalUnitCount: request.attachments.isEmpty ? 0 : -1)
      guarded.progress = progress
      return progress
    }
  }

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
    .applicationNotFound, .brokerUnavailable, .limitExceeded,
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
    for continuation in waiting { continuation.resume(with: result.mapError { $0 as any Error }) }
  }

  func enqueue() {
    guarded.withLock { $0.stage = request.attachments.isEmpty ? .ready(fileCount: 0) : .waiting }
  }

  /// False when there is nothing to copy, or not any more.
  func beginCopying() -> Bool {
    guarded.withLock {
      guard $0.stage == .waiting, $0.outcome == nil else { return false }
      $0.stage = .copying
      return true
    }
  }

  /// False when it was cancelled meanwhile, or has ended.
  func endCopying(fileCount: Int) -> Bool {
    guarded.withLock {
      $0.stage = .ready(fileCount: fileCount)
      return !$0.isCancelWanted && $0.outcome == nil
    }
  }

  /// How many files the receiver has; nil when not all of them are there, or it was submitted.
  var readyFileCount: Int? {
    guarded.withLock { if case .ready(let fileCount) = $0.stage { fileCount } else { nil } }
  }

  /// Its files are counted with it; nil when it was cancelled, or has ended.
  func submit() -> Int? {
    guarded.withLock {
      guard case .ready(let fileCount) = $0.stage, $0.outcome == nil, $0.progress?.isCancelled != true else {
        return nil
      }
      $0.stage = .submitted
      return fileCount
    }
  }

  /// Stops the copying of its files. Returns where it was found.
  func cancelBeforeSubmission() -> Stage {
    let stage = guarded.withLock {
      $0.isCancelWanted = true
      return $0.stage
    }
    if stage == .copying {
      // What the app observes of it is not called within the runtime's work.
      let progress = progress
      runtime.workQueue.async { progress.cancel() }
    }
    return stage
  }

  var hasEnded: Bool { guarded.withLock { $0.outcome != nil } }

  var isProgressCancelled: Bool { guarded.withLock { $0.progress?.isCancelled == true } }

  func keep(_ paths: [String], of receiver: Runtime) { guarded.withLock { $0.kept = (receiver, paths) } }

  func takeKept() -> (receiver: Runtime, paths: [String])? { guarded.withLock { $0.kept.take() } }

  func tell(_ event: RequestEvent, isLast: Bool = false) {
    guarded.withLock { guarded in
      guard let continuation = guarded.continuation else { return guarded.events.append(event) }
      continuation.yield(event)
      if isLast { continuation.finish() }
    }
  }

  func didSend() {
    guarded.withLock { if $0.status == .waiting { $0.status = .sent } }
    accept()
  }

  func didDeliver() {
    accept()
    let waiting = guarded.withLock { guarded in
      guard guarded.outcome == nil, guarded.status != .delivered else {
        return [CheckedContinuation<Void, any Error>]()
      }
      guarded.status = .delivered
      defer { guarded.waitingForDelivery = [] }
      return guarded.waitingForDelivery
    }
    tell(.didFinishSending)
    for continuation in waiting { continuation.resume() }
  }

  /// Whoever wants to cancel hears that it is too late.
  func didNotCancel() {
    let waiting = guarded.withLock { guarded in
      defer { guarded.waitingForCancellation = [] }
      return guarded.waitingForCancellation
    }
    for continuation in waiting { continuation.resume(returning: false) }
  }

  /// Only the first end counts.
  func end(_ status: Status, _ outcome: Result<ServiceReply?, any Error>, _ event: RequestEvent) {
    let ended: Guarded? = guarded.withLock {
      guard $0.outcome == nil else { return nil }
      let before = $0
      $0.status = status
      $0.outcome = outcome
      $0.waitingForDelivery = []
      $0.waitingForOutcome = []
      $0.waitingForCancellation = []
      return before
    }
    guard let ended else { return }
    switch outcome {
    case .failure(let error as ServicesError)
    where ended.status == .waiting && Self.thrownBySend.contains(error.code):
      accept(.failure(error))
    default: accept()
    }
    tell(event, isLast: true)
    for waiting in ended.waitingForDelivery {
      switch outcome {
      case .success: waiting.resume()
      case .failure(let error): waiting.resume(throwing: error)
      }
    }
    for waiting in ended.waitingForOutcome { waiting.resume(with: outcome) }
    for waiting in ended.waitingForCancellation { waiting.resume(returning: status == .cancelled) }
  }
}
