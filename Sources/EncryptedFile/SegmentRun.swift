/// Segments with consecutive indexes and consecutive counters (FILE-FORMAT.md, "Runs and extents").
public struct SegmentRun: Hashable, Sendable {
  /// Index of the first segment: the number of its grain in the file.
  public var start: UInt64
  /// At least 1.
  public var count: UInt32
  /// Plaintext bytes of the last segment, 1 … 16384; the others are full.
  public var lastLength: UInt32
  /// The write number of the first segment.
  public var writeNumber: WriteNumber

  public init(start: UInt64, count: UInt32, lastLength: UInt32, writeNumber: WriteNumber) {
    self.start = start
    self.count = count
    self.lastLength = lastLength
    self.writeNumber = writeNumber
  }

  /// The run that holds so many plaintext bytes, at least 1, from a grain on.
  public init(start: UInt64, plaintextByteCount: Int, writeNumber: WriteNumber) {
    precondition(plaintextByteCount >= 1, "a run has at least one byte")
    let count = Int(SegmentLayout.segmentCount(UInt64(plaintextByteCount)))
    let lastLength = plaintextByteCount - (count - 1) * SegmentLayout.plaintextByteCountMax
    self.init(
      start: start, count: UInt32(count), lastLength: UInt32(lastLength), writeNumber: writeNumber)
  }

  /// The grain after the last one.
  public var end: UInt64 { start + UInt64(count) }

  public var plaintextByteCount: Int {
    (Int(count) - 1) * SegmentLayout.plaintextByteCountMax + Int(lastLength)
  }

  public var storedByteCount: Int { plaintextByteCount + Int(count) * SegmentLayout.overheadByteCount }

  /// The part of the run that begins `skipped` segments after its start and has `count` segments.
  public func slice(skipping skipped: Int, count: Int) -> SegmentRun {
    precondition(skipped >= 0 && count >= 1 && skipped + count <= self.count, "the slice lies in the run")
    let reachesEnd = skipped + count == self.count
    return SegmentRun(
      start: start + UInt64(skipped), count: UInt32(count),
      lastLength: reachesEnd ? lastLength : UInt32(SegmentLayout.plaintextByteCountMax),
      writeNumber: writeNumber.advanced(by: skipped))
  }

  /// One segment of the run.
  @inline(__always)
  func segment(_ number: Int) -> SegmentRun { slice(skipping: number, count: 1) }
}
