import EncryptedFile
import SodiumPrimitives

/// Progress of one file that is read or written by a single thread.
struct PieceReport {
  private let control: BulkControl
  private let byteCount: UInt64
  private let beginning = Clock.monotonicNanoseconds()
  private var lastReport: Int64?
  private(set) var bytesDone: UInt64 = 0

  /// The maximum number of bytes that are read or written in one step.
  static let pieceByteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax

  private static let intervalNanoseconds: Int64 = 50_000_000

  init(_ control: BulkControl, byteCount: UInt64) {
    self.control = control
    self.byteCount = byteCount
  }

  /// Adds `count` bytes and reports progress if a report is due. Throws `cancelled`.
  mutating func advance(_ count: Int) throws {
    bytesDone += UInt64(count)
    let now = Clock.monotonicNanoseconds()
    // Report before and after the first piece, then at most twenty times a second.
    if lastReport.map({ now - $0 >= Self.intervalNanoseconds }) ?? true {
      lastReport = count == 0 ? nil : now
      report(filesDone: 0)
    }
    if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
  }

  func end() { report(filesDone: 1) }

  private func report(filesDone: Int) {
    control.progress?(
      BulkProgress(
        bytesDone: bytesDone, byteCount: byteCount, filesDone: filesDone, fileCount: 1,
        seconds: Double(Clock.monotonicNanoseconds() - beginning) / 1e9))
  }
}
