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

  func show(in progress: Progress) {
    guard fileCount > 0 else { return }
    progress.totalUnitCount = Int64(clamping: byteCount)
    progress.completedUnitCount = Int64(clamping: bytesDone)
    progress.setUserInfoObject(Int(clamping: fileCount), forKey: .fileTotalCountKey)
    progress.setUserInfoObject(Int(clamping: filesSent), forKey: .fileCompletedCountKey)
  }
}

/// Counts the bytes of a message that this app sends.
final class TransferMeter: Sendable {
  private struct Fields {
    var transfer = TransferProgress()
    var progress: Progress?
  }

  private let guarded = Guarded(Fields())

  var transfer: TransferProgress { guarded.withLock { $0.transfer } }

  /// Whether the progress was cancelled.
  var isCancelled: Bool { guarded.withLock { $0.progress }?.isCancelled ?? false }

  /// Returns the transfer as Foundation shows it, made when it is first asked for. `cancel` is called when it is cancelled.
  func progress(hasFiles: Bool, cancel: @escaping @Sendable () -> Void) -> Progress {
    let (progress, transfer, isNew) = guarded.withLock { guarded in
      if let progress = guarded.progress { return (progress, guarded.transfer, false) }
      let progress = Progress(totalUnitCount: hasFiles ? -1 : 0)
      guarded.progress = progress
      return (progress, guarded.transfer, true)
    }
    if isNew {
      progress.cancellationHandler = cancel
      transfer.show(in: progress)
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
    advance {
      $0.bytesDone = $0.byteCount
      $0.filesSent = $0.fileCount
    }
  }

  /// `change` gets what was counted before.
  func advance(_ change: (inout TransferProgress) -> Void) {
    let (progress, transfer) = guarded.withLock {
      change(&$0.transfer)
      return ($0.progress, $0.transfer)
    }
    if let progress { transfer.show(in: progress) }
  }
}
