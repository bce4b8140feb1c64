/// A run of segments, and where it is stored (FILE-FORMAT.md, "Runs and extents").
public struct Extent: Hashable, Sendable {
  public var run: SegmentRun
  public var slab: UInt32
  /// Bytes from the beginning of the slab.
  public var offset: UInt64

  public init(_ run: SegmentRun, slab: UInt32, offset: UInt64) {
    self.run = run
    self.slab = slab
    self.offset = offset
  }

  public init(
    start: UInt64, count: UInt32, lastLength: UInt32, writeNumber: WriteNumber, slab: UInt32, offset: UInt64
  ) {
    self.init(
      SegmentRun(start: start, count: count, lastLength: lastLength, writeNumber: writeNumber), slab: slab,
      offset: offset)
  }

  /// The part of the run that begins `skipped` segments after its start and has `count` segments.
  public func slice(skipping skipped: Int, count: Int) -> Extent {
    Extent(
      run.slice(skipping: skipped, count: count), slab: slab,
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

/// The members of the run. They can be inlined, since maps of extents are searched by them.
extension Extent {
  @inlinable public var start: UInt64 {
    get { run.start }
    set { run.start = newValue }
  }
  @inlinable public var count: UInt32 {
    get { run.count }
    set { run.count = newValue }
  }
  @inlinable public var lastLength: UInt32 {
    get { run.lastLength }
    set { run.lastLength = newValue }
  }
  @inlinable public var writeNumber: WriteNumber {
    get { run.writeNumber }
    set { run.writeNumber = newValue }
  }
  public var end: UInt64 { run.end }
  public var plaintextByteCount: Int { run.plaintextByteCount }
  public var storedByteCount: Int { run.storedByteCount }
}
