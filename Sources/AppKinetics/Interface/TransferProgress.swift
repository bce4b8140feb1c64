import Foundation

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
