import AppKinetics
import Foundation
import Locks

/// Work without a person (Documentation/BACKGROUND.md).
extension AppRuntime {
  /// Fetches data, if the app is authorized: also while it is idle or blocked by itself, when nothing may be shown. For the host's own
  /// timer, or that of the system.
  ///
  /// The work has 30 seconds. Then its task is cancelled and `expired` is called, and five seconds later the run has failed, whatever
  /// the work still does.
  ///
  ///     await runtime.performFetch { app in
  ///       try await download(into: app.container) ? .newData : .noData
  ///     }
  @discardableResult
  public func performFetch(
    expired: @escaping @Sendable () -> Void = {},
    _ work: @escaping @Sendable (Opened) async throws -> BackgroundRun.Result
  ) async -> BackgroundRun {
    let authorization = authorization
    guard let opened = state.withLock({ $0.opened }) else {
      let reason =
        authorization.keysTakenBy.map { "\($0.code.rawValue)" }
        ?? "\(AppRuntimeError.Code.notAuthorized)"
      return note(.fetch, begin: options.clock.now, .notAuthorized, reason)
    }
    return await run(.fetch, expired) {
      let result = try await work(opened)
      // What the run says it has fetched is there, whatever takes the keys next.
      if result == .newData { try await opened.container.synchronize() }
      return result
    }
  }

  /// Delivers a notification to the app, whether or not it is authorized: the handler gets the state, and checks it before it touches
  /// anything. It has the time of ``performFetch(expired:_:)``.
  ///
  ///     await runtime.deliver { state in
  ///       guard state.isAuthorized else { return .noData }
  ///       return try store(message, in: runtime.container)
  ///     }
  @discardableResult
  public func deliver(
    expired: @escaping @Sendable () -> Void = {},
    _ handler: @escaping @Sendable (Authorization) async throws -> BackgroundRun.Result
  ) async -> BackgroundRun {
    let authorization = authorization
    return await run(.push, expired) { try await handler(authorization) }
  }

  /// The last runs, the newest first. They outlive the process.
  public var backgroundRuns: [BackgroundRun] { state.withLock { $0.kept.runs } }

  private func run(
    _ kind: BackgroundRun.Kind, _ expired: @escaping @Sendable () -> Void,
    _ work: @escaping @Sendable () async throws -> BackgroundRun.Result
  ) async -> BackgroundRun {
    let begin = options.clock.now
    let (ends, end) = AsyncStream.makeStream(of: (result: BackgroundRun.Result, reason: String?).self)
    let task = Task {
      do {
        end.yield((try await work(), nil))
      } catch {
        // The state file is in the clear: no text of the app's.
        end.yield((.failed, "\(type(of: error))"))
      }
      end.finish()
    }
    let deadline = Guarded<(any AppTimer)?>(nil)
    let isOver = Guarded(false)
    let timer = options.clock.makeTimer {
      let isFirst = isOver.withLock { isOver in
        defer { isOver = true }
        return !isOver
      }
      guard isFirst else { return end.finish() }
      task.cancel()
      deadline.withLock { $0?.set(to: begin + BackgroundRun.time + BackgroundRun.graceTime) }
      expired()
    }
    deadline.withLock { $0 = timer }
    timer.set(to: begin + BackgroundRun.time)
    // Cancelling the caller cancels the work, which has its time all the same.
    let waiting = Task { await ends.first { _ in true } ?? (.failed, "it did not end in time") }
    let outcome = await withTaskCancellationHandler {
      await waiting.value
    } onCancel: {
      task.cancel()
    }
    timer.cancel()
    return note(kind, begin: begin, outcome.result, outcome.reason)
  }

  private func note(
    _ kind: BackgroundRun.Kind, begin: Duration, _ result: BackgroundRun.Result, _ reason: String?
  ) -> BackgroundRun {
    let seconds = (options.clock.now - begin) / .seconds(1)
    let run = BackgroundRun(
      kind: kind, begin: options.clock.date - seconds, seconds: seconds, result: result,
      reason: reason.map { Notice.shortened($0, to: 200) })
    change { state in
      state.kept.runs.insert(run, at: 0)
      if state.kept.runs.count > BackgroundRun.countMax { state.kept.runs.removeLast() }
      return []
    }
    return run
  }
}
