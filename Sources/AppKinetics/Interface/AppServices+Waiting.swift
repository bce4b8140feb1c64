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

  /// ``providers(of:version:type:includesOwn:includesContents:includesNonProviders:)``, waiting.
  @available(*, noasync, message: "await providers(of:)")
  public func providersAndWait(
    of service: ServiceIdentifier? = nil, version: ServiceVersion? = nil, type: ServiceType? = nil,
    includesOwn: Bool = false, includesContents: Bool = false, includesNonProviders: Bool = false
  ) throws -> [Provider] {
    try wait {
      try await self.providers(
        of: service, version: version, type: type, includesOwn: includesOwn,
        includesContents: includesContents, includesNonProviders: includesNonProviders)
    }
  }

  /// ``launch(_:)``, waiting.
  @available(*, noasync, message: "await launch(_:)")
  public func launchAndWait(_ application: ApplicationID) throws {
    try wait { try await self.launch(application) }
  }

  /// ``bringToFront(_:)``, waiting.
  @available(*, noasync, message: "await bringToFront(_:)")
  public func bringToFrontAndWait(_ application: ApplicationID) throws {
    try wait { try await self.bringToFront(application) }
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
  Task.detached(executorPreference: WaitedFor()) {
    let result: Result<R, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    outcome.withLock { $0 = result }
    done.signal()
  }
  done.wait()
  return outcome.withLock { $0! }
}

/// Runs a task on a queue of its own: each thread of the pool that Swift's tasks share may be one that waits for such a task.
private final class WaitedFor: TaskExecutor {
  private let queue = DispatchQueue(label: "opendynamics.services.waiting")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
