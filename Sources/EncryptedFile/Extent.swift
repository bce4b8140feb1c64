/// A number under which one segment is sealed and no other: the session of the writer, and a counter in it.
public struct WriteNumber: Hashable, Sendable {
  public var session: Identifier
  public var counter: UInt64

  public init(session: Identifier, counter: UInt64) {
    self.session = session
    self.counter = counter
  }

  public func advanced(by count: Int) -> WriteNumber {
    WriteNumber(session: session, counter: counter + UInt64(count))
  }
}

/// The sizes of format 1.
public enum SegmentLayout {
  /// Plaintext bytes of a full segment.
  public static let plaintextByteCountMax = 16384
  /// Header, secretstream tag byte and Poly1305 tag.
  public static let overheadByteCount = 41
  public static let storedByteCountMax = plaintextByteCountMax + overheadByteCount
  /// Segments in a unit of work: 1 MiB of plaintext. Chosen by us, not part of the format.
  public static let segmentsPerUnit = 64

  /// How many segments hold `byteCount` bytes.
  public static func segmentCount(_ byteCount: UInt64) -> UInt64 {
    (byteCount + UInt64(plaintextByteCountMax) - 1) / UInt64(plaintextByteCountMax)
  }

  /// Stored bytes of `byteCount` bytes of plaintext, sealed without holes.
  public static func storedByteCount(_ byteCount: Int) -> Int {
    byteCount + Int(segmentCount(UInt64(byteCount))) * overheadByteCount
  }
}

/// A run of segments stored back to back (FILE-FORMAT.md, "Runs and extents").
public struct Extent: Hashable, Sendable {
  /// Index of the first segment: the number of its grain in the file.
  public var start: UInt64
  /// At least 1.
  public var count: UInt32
  /// Plaintext bytes of the last segment, 1 … 16384; the others are full.
  public var lastLength: UInt32
  /// Of the first segment.
  public var writeNumber: WriteNumber
  public var slab: UInt32
  /// Bytes from the beginning of the slab.
  public var offset: UInt64

  public init(
    start: UInt64, count: UInt32, lastLength: UInt32, writeNumber: WriteNumber, slab: UInt32, offset: UInt64
  ) {
    self.start = start
    self.count = count
    self.lastLength = lastLength
    self.writeNumber = writeNumber
    self.slab = slab
    self.offset = offset
  }

  /// The grain after the last one.
  public var end: UInt64 { start + UInt64(count) }

  public var plaintextByteCount: Int {
    (Int(count) - 1) * SegmentLayout.plaintextByteCountMax + Int(lastLength)
  }

  public var storedByteCount: Int { plaintextByteCount + Int(count) * SegmentLayout.overheadByteCount }

  /// The part of the run that begins `skipped` segments after its start and has `count` segments.
  public func slice(skipping skipped: Int, count: Int) -> Extent {
    precondition(skipped >= 0 && count >= 1 && skipped + count <= self.count, "the slice lies in the run")
    let reachesEnd = skipped + count == self.count
    return Extent(
      start: start + UInt64(skipped), count: UInt32(count),
      lastLength: reachesEnd ? lastLength : UInt32(SegmentLayout.plaintextByteCountMax),
      writeNumber: writeNumber.advanced(by: skipped), slab: slab,
      offset: offset + UInt64(skipped * SegmentLayout.storedByteCountMax))
  }

  /// Whether the run is possible at all in a file of `size` bytes.
  public func isValid(inFileOfSize size: UInt64) -> Bool {
    let grain = UInt64(SegmentLayout.plaintextByteCountMax)
    guard count >= 1, lastLength >= 1, lastLength <= grain, start < 1 << 48, offset < 1 << 48, size < 1 << 62,
      writeNumber.counter >= 1, writeNumber.counter <= UInt64.max - UInt64(count)
    else { return false }
    return (end - 1) * grain + UInt64(lastLength) <= size
  }
}
