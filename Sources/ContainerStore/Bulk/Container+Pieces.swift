import EncryptedFile
import SodiumPrimitives

extension Container {
  /// Reads a file as it is now, piece by piece, 1 MiB at most at a time, in order. `begin` gets its
  /// number of bytes before that. What either throws ends it. Throws `noSuchFile`, `isADirectory`,
  /// `cancelled`, and `fileDamaged` after `body` has got all segments before the damaged one.
  public func read(
    _ path: String, control: BulkControl, begin: (UInt64) throws -> Void,
    _ body: (UnsafeRawBufferPointer) throws -> Void
  ) throws {
    try withReader(path) { reader in
      var report = PieceReport(control, byteCount: reader.size)
      try report.advance(0)
      try begin(reader.size)
      let buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax, alignment: 4096)
      defer {
        wipe(buffer)
        buffer.deallocate()
      }
      while report.bytesDone < reader.size {
        let count = try reader.readOneSegmentAtLeast(at: report.bytesDone, into: buffer)
        try body(UnsafeRawBufferPointer(rebasing: buffer[0..<count]))
        try report.advance(count)
      }
      report.end()
    }
  }

  /// Creates a file, or replaces the one that is there, in one step. Throws as the form without `control` does, and `cancelled`:
  /// then nothing is left of it.
  public func write(
    _ contents: UnsafeRawBufferPointer, to path: String, permissions: UInt16 = 0o600, control: BulkControl
  ) throws {
    let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    var report = PieceReport(control, byteCount: UInt64(contents.count))
    try report.advance(0)
    var done = 0
    try write(to: path, permissions: permissions) {
      try report.advance(done - Int(report.bytesDone))
      guard done < contents.count else { return nil }
      let piece = contents[done..<min(done + unit, contents.count)]
      done += piece.count
      return [UInt8](piece)
    }
    report.end()
  }
}

extension EncryptedFileReader {
  /// Fills the buffer, or only its first segment where a later one is damaged. `offset` is a segment's.
  fileprivate mutating func readOneSegmentAtLeast(
    at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer
  ) throws -> Int {
    do {
      return try read(at: offset, into: buffer)
    } catch {
      let segment = UnsafeMutableRawBufferPointer(rebasing: buffer[..<SegmentLayout.plaintextByteCountMax])
      return try read(at: offset, into: segment)
    }
  }
}

/// Progress of one file that one thread reads or writes.
private struct PieceReport {
  private let control: BulkControl
  private let byteCount: UInt64
  private let beginning = Clock.monotonicNanoseconds()
  private var lastReport: Int64?
  private(set) var bytesDone: UInt64 = 0

  private static let intervalNanoseconds: Int64 = 50_000_000

  init(_ control: BulkControl, byteCount: UInt64) {
    self.control = control
    self.byteCount = byteCount
  }

  /// Throws `cancelled`.
  mutating func advance(_ count: Int) throws {
    bytesDone += UInt64(count)
    let now = Clock.monotonicNanoseconds()
    // Before the first piece, behind it, and then at most twenty times a second.
    if lastReport.map({ now - $0 >= Self.intervalNanoseconds }) ?? true {
      lastReport = count == 0 ? nil : now
      tell(filesDone: 0)
    }
    if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
  }

  func end() { tell(filesDone: 1) }

  private func tell(filesDone: Int) {
    control.progress?(
      BulkProgress(
        bytesDone: bytesDone, byteCount: byteCount, filesDone: filesDone, fileCount: 1,
        seconds: Double(Clock.monotonicNanoseconds() - beginning) / 1e9))
  }
}
