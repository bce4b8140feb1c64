import Dispatch
import Locks

/// The same for code that is not asynchronous, such as a program's main thread or a thread of its own. Each call blocks its thread until it is done;
/// a queue of callbacks must not wait for what is called on that queue. From asynchronous code they cannot be called.
extension AppServices {
  /// ``start()``, waiting.
  @available(*, noasync, message: "await start()")
  public func startAndWait() throws { try wait { try await self.start() } }

  /// ``stop()``, waiting.
  @available(*, noasync, message: "await stop()")
  public func stopAndWait() { _ = outcome(of: { await self.stop() }) }

  /// ``stop(waitingForHandlers:)``, waiting.
  @available(*, noasync, message: "await stop(waitingForHandlers:)")
  public func stopAndWait(waitingForHandlers time: Duration) {
    _ = outcome(of: { await self.stop(waitingForHandlers: time) })
  }

  /// ``setState(_:)``, waiting.
  @available(*, noasync, message: "await setState(_:)")
  public func setStateAndWait(_ state: ApplicationState) throws {
    try wait { try await self.setState(state) }
  }

  /// ``send(_:to:)``, waiting until the request was taken.
  @available(*, noasync, message: "await send(_:to:)")
  public func sendAndWait(_ request: ServiceRequest, to application: ApplicationID) throws -> SentRequest {
    try wait { try await self.send(request, to: application) }
  }

  /// ``call(_:to:)``, waiting for the reply.
  @available(*, noasync, message: "await call(_:to:)")
  @discardableResult
  public func callAndWait(
    _ request: ServiceRequest, to application: ApplicationID
  ) throws -> ServiceReply? {
    try wait { try await self.call(request, to: application) }
  }

  /// ``providers(of:version:type:includesOwn:includesContents:)``, waiting.
  @available(*, noasync, message: "await providers(of:)")
  public func providersAndWait(
    of service: ServiceIdentifier? = nil, version: ServiceVersion? = nil, type: ServiceType? = nil,
    includesOwn: Bool = false, includesContents: Bool = false
  ) throws -> [Provider] {
    try wait {
      try await self.providers(
        of: service, version: version, type: type, includesOwn: includesOwn,
        includesContents: includesContents)
    }
  }

  /// ``cancelRequest(_:to:)``, waiting.
  @available(*, noasync, message: "await cancelRequest(_:to:)")
  @discardableResult
  public func cancelRequestAndWait(_ request: RequestID, to application: ApplicationID) throws -> Bool {
    try wait { try await self.cancelRequest(request, to: application) }
  }

  /// ``cancelRequests(to:)``, waiting.
  @available(*, noasync, message: "await cancelRequests(to:)")
  @discardableResult
  public func cancelRequestsAndWait(to application: ApplicationID) throws -> Bool {
    try wait { try await self.cancelRequests(to: application) }
  }

  /// ``outbox()``, waiting.
  @available(*, noasync, message: "await outbox()")
  public func outboxAndWait() throws -> [OutboxMessage] { try wait { try await self.outbox() } }

  /// ``keptRequests()``, waiting.
  @available(*, noasync, message: "await keptRequests()")
  public func keptRequestsAndWait() throws -> [IncomingRequest] {
    try wait { try await self.keptRequests() }
  }

  /// ``removeAttachments(_:)``, waiting.
  @available(*, noasync, message: "await removeAttachments(_:)")
  public func removeAttachmentsAndWait(_ paths: [String]) throws {
    try wait { try await self.removeAttachments(paths) }
  }

  /// ``bringToFront(_:)``, waiting.
  @available(*, noasync, message: "await bringToFront(_:)")
  public func bringToFrontAndWait(_ application: ApplicationID) throws {
    try wait { try await self.bringToFront(application) }
  }
}

extension SentRequest {
  /// ``delivered()``, waiting.
  @available(*, noasync, message: "await delivered()")
  public func deliveredAndWait() throws { try wait { try await self.delivered() } }

  /// ``reply()``, waiting.
  @available(*, noasync, message: "await reply()")
  public func replyAndWait() throws -> ServiceReply? { try wait { try await self.reply() } }

  /// ``cancel()``, waiting.
  @available(*, noasync, message: "await cancel()")
  @discardableResult
  public func cancelAndWait() -> Bool {
    if case .success(let isCancelled) = outcome(of: { await self.cancel() }) { isCancelled } else { false }
  }
}

extension IncomingRequest {
  /// ``keep()``, waiting.
  @available(*, noasync, message: "await keep()")
  public func keepAndWait() throws { try wait { try await self.keep() } }

  /// ``removeAttachments()``, waiting.
  @available(*, noasync, message: "await removeAttachments()")
  public func removeAttachmentsAndWait() throws { try wait { try await self.removeAttachments() } }

  /// ``reply(_:attachments:foreground:)``, waiting until the reply was taken.
  @available(*, noasync, message: "await reply(_:attachments:foreground:)")
  public func replyAndWait(
    _ params: ServiceValue? = nil, attachments: [String] = [], foreground: ForegroundPreference = .none
  ) throws {
    try wait { try await self.reply(params, attachments: attachments, foreground: foreground) }
  }

  /// ``reply(error:foreground:)``, waiting in the same way.
  @available(*, noasync, message: "await reply(error:foreground:)")
  public func replyAndWait(error: ServiceReplyError, foreground: ForegroundPreference = .none) throws {
    try wait { try await self.reply(error: error, foreground: foreground) }
  }
}

/// Runs an asynchronous function in a task of its own, and blocks this thread until it has ended.
@available(*, noasync)
private func wait<R: Sendable>(_ body: @escaping @Sendable () async throws -> R) throws -> R {
  try outcome(of: body).get()
}

@available(*, noasync)
private func outcome<R: Sendable>(
  of body: @escaping @Sendable () async throws -> R
) -> Result<R, any Error> {
  let done = DispatchSemaphore(value: 0)
  let outcome = Guarded<Result<R, any Error>?>(nil)
  Task.detached {
    let result: Result<R, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    outcome.withLock { $0 = result }
    done.signal()
  }
  done.wait()
  return outcome.withLock { $0! }
}
