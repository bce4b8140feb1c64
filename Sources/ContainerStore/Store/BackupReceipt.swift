/// The result of a backup.
public struct BackupReceipt: Sendable {
  /// The last commit in the backup.
  public var commit: UInt64
  public var fileCount: Int
  /// Bytes that were copied, still encrypted.
  public var byteCount: UInt64
  /// What could not be read: it is missing in the backup, and damages there what it damages in the
  /// container.
  public var findings: [Finding] = []
}
