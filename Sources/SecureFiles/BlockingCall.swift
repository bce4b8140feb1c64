import ContainerStore
import Foundation

/// Runs calls that block on threads of their own, off the cooperative pool, which is as wide as the machine.
package enum BlockingCall {
  package static func run<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
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
