import Foundation
import Locks

/// How far the attachments of a message are on their way.
public struct TransferProgress: Sendable, Hashable {
  /// The file of which bytes were sent last.
  public struct File: Sendable, Hashable {
    /// In the sender's container.
    public var path: String
    /// Of its contents.
    public var bytesSent: UInt64
    /// The size of the file in bytes.
    public var byteCount: UInt64
  }

  /// Bytes of contents that the receiver has.
  public var bytesDone: UInt64 = 0
  /// Of all files.
  public var byteCount: UInt64 = 0
  /// Files of which every byte was sent.
  public var filesSent: UInt64 = 0
  /// The number of all files.
  public var fileCount: UInt64 = 0
  /// The file under way; nil before the first byte.
  public var file: File?

  /// `isFinished` says that the receiver has everything, also when there is nothing to count.
  func show(in progress: Progress, isFinished: Bool) {
    guard fileCount > 0 || isFinished else { return }
    // A `Progress` of no units is never finished.
    let isEmpty = isFinished && byteCount == 0
    progress.totalUnitCount = isEmpty ? 1 : Int64(clamping: byteCount)
    progress.completedUnitCount = isEmpty ? 1 : Int64(clamping: bytesDone)
    progress.setUserInfoObject(Int(clamping: fileCount), forKey: .fileTotalCountKey)
    progress.setUserInfoObject(Int(clamping: filesSent), forKey: .fileCompletedCountKey)
  }
}

/// Counts the bytes of a message that is on its way.
final class TransferMeter: Sendable {
  private struct Fields {
    var transfer = TransferProgress()
    var progress: Progress?
    /// The receiver has everything.
    var isFinished = false
    /// Whether the progress still lacks the last change.
    var isBehind = true
    /// Whether a thread is updating the progress. That thread continues until `isBehind` is false.
    var isShowing = false

    mutating func beginShowing() -> Progress? {
      guard !isShowing, let progress else { return nil }
      isShowing = true
      return progress
    }

    mutating func nextToShow() -> (transfer: TransferProgress, isFinished: Bool)? {
      isShowing = isBehind
      guard isBehind else { return nil }
      isBehind = false
      return (transfer, isFinished)
    }
  }

  private let guarded = Guarded(Fields())

  var transfer: TransferProgress { guarded.withLock { $0.transfer } }

  /// Whether the progress was cancelled.
  var isCancelled: Bool { guarded.withLock { $0.progress }?.isCancelled ?? false }

  /// Returns the transfer as Foundation shows it, made when it is first asked for. `cancel` is called when it is cancelled.
  func progress(hasFiles: Bool, cancel: @escaping @Sendable () -> Void) -> Progress {
    let (progress, isNew) = guarded.withLock { guarded in
      if let progress = guarded.progress { return (progress, false) }
      let progress = Progress.discreteProgress(totalUnitCount: hasFiles ? -1 : 0)
      guarded.progress = progress
      return (progress, true)
    }
    if isNew {
      progress.cancellationHandler = cancel
      show()
    }
    return progress
  }

  func begin(byteCount: UInt64, fileCount: UInt64) {
    advance {
      $0.byteCount = byteCount
      $0.fileCount = fileCount
    }
  }

  /// The receiver has everything.
  func finish() {
    change {
      $0.transfer.bytesDone = $0.transfer.byteCount
      $0.transfer.filesSent = $0.transfer.fileCount
      $0.isFinished = true
    }
  }

  /// `body` gets what was counted before. What another thread has still to say after the end changes nothing.
  func advance(_ body: (inout TransferProgress) -> Void) {
    change { if !$0.isFinished { body(&$0.transfer) } }
  }

  private func change(_ body: (inout Fields) -> Void) {
    guarded.withLock {
      body(&$0)
      $0.isBehind = true
    }
    show()
  }

  /// Updates the progress on one thread at a time, and without the lock, because observers are called. That thread also shows what
  /// others count meanwhile, so no older report follows a newer one.
  private func show() {
    guard let progress = guarded.withLock({ $0.beginShowing() }) else { return }
    while let next = guarded.withLock({ $0.nextToShow() }) {
      next.transfer.show(in: progress, isFinished: next.isFinished)
    }
  }
}
