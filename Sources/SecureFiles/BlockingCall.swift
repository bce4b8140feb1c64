import ContainerStore
package import Dispatch
import Foundation
import Locks

/// Runs calls that block on threads of their own, off the cooperative pool, which is as wide as the machine; and lets code that blocks wait for tasks.
package enum BlockingCall {
  package static func run<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
  }

  /// Runs an asynchronous function in a task of its own, and blocks this thread until it has ended.
  @available(*, noasync)
  package static func wait<R: Sendable>(_ body: @escaping @Sendable () async throws -> R) throws -> R {
    guard let result = try wait(until: .distantFuture, body) else {
      preconditionFailure("the wait has ended")
    }
    return result
  }

  /// Nil when it has not ended by then: it goes on.
  @available(*, noasync)
  package static func wait<R: Sendable>(
    until time: DispatchTime, _ body: @escaping @Sendable () async throws -> R
  ) throws -> R? {
    let done = DispatchSemaphore(value: 0)
    let outcome = Guarded<Result<R, any Error>?>(nil)
    Task.detached(executorPreference: QueueExecutor()) {
      let result: Result<R, any Error>
      do { result = .success(try await body()) } catch { result = .failure(error) }
      outcome.withLock { $0 = result }
      done.signal()
    }
    _ = done.wait(timeout: time)
    return try outcome.withLock { $0 }?.get()
  }

  /// Runs a bulk operation, with Foundation's progress and the task's cancellation.
  static func run<R: Sendable>(
    progress: Progress?, _ body: @escaping @Sendable (BulkControl) throws -> R
  ) async throws -> R {
    let cancellation = Cancellation()
    let report = progress.map { ProgressReport($0, cancellation) }
    return try await withTaskCancellationHandler {
      try await run {
        try body(BulkControl(progress: { report?.update($0) }, cancellation: cancellation))
      }
    } onCancel: {
      cancellation.cancel()
    }
  }
}

/// Runs tasks on a queue of its own: they go on while every thread of the cooperative pool is one that waits, and begin in their order.
package final class QueueExecutor: TaskExecutor {
  private let queue = DispatchQueue(label: "opendynamics.tasks")

  package init() {}

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}

/// Carries a bulk operation's figures into a `Progress`, and the progress's cancellation back.
private final class ProgressReport: @unchecked Sendable {
  // Invariant: `progress` is thread-safe by Foundation's contract, and the rest is constant.
  private let progress: Progress
  private let cancellation: Cancellation

  init(_ progress: Progress, _ cancellation: Cancellation) {
    self.progress = progress
    self.cancellation = cancellation
    progress.kind = .file
    progress.isCancellable = true
    progress.cancellationHandler = { cancellation.cancel() }
    if progress.isCancelled { cancellation.cancel() }
  }

  func update(_ figures: BulkProgress) {
    // Foundation takes 0 of 0 for not begun: what has no bytes counts as one.
    progress.totalUnitCount = Int64(max(1, figures.byteCount))
    progress.completedUnitCount = figures.isFinished ? progress.totalUnitCount : Int64(figures.bytesDone)
    progress.setUserInfoObject(figures.fileCount, forKey: .fileTotalCountKey)
    progress.setUserInfoObject(figures.filesDone, forKey: .fileCompletedCountKey)
    progress.setUserInfoObject(Int(figures.bytesPerSecond), forKey: .throughputKey)
    if progress.isCancelled { cancellation.cancel() }
  }
}
