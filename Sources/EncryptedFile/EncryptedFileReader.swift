import SodiumPrimitives

/// Reads a file's contents at any offset, from its extents and a function that reads stored bytes.
///
/// For one thread at a time. A read verifies a unit (1 MiB) before it releases a byte of it. When a
/// later unit of one call fails, the call returns the bytes before it, and the next call throws.
public struct EncryptedFileReader: ~Copyable {
  /// Fills a buffer from a slab; returns fewer bytes where the slab ends.
  public typealias StoredBytes = (_ slab: UInt32, _ offset: UInt64, UnsafeMutableRawBufferPointer) throws ->
    Int

  public let size: UInt64
  private let key: FileKey
  private let extents: [Extent]
  private let storedBytes: StoredBytes
  private let cipher: SegmentCipher
  private var stored: [UInt8] = []
  /// Zeros, except during a read.
  private var opened: [UInt8] = []

  /// Throws ``SegmentError/damagedExtent(grain:)`` when the extents overlap or do not fit the size,
  /// or the size the format.
  public init(
    key: consuming FileKey, size: UInt64, extents: [Extent], cipher: SegmentCipher,
    storedBytes: @escaping StoredBytes
  ) throws(SegmentError) {
    self.key = key
    self.size = size
    self.extents = try Self.checked(extents, size: size)
    self.cipher = cipher
    self.storedBytes = storedBytes
  }

  /// The extents in order of their starts, checked to be possible together (FILE-FORMAT.md, "Runs
  /// and extents").
  public static func checked(_ extents: [Extent], size: UInt64) throws(SegmentError) -> [Extent] {
    guard size < 1 << 62 else { throw .damagedExtent(grain: 0) }
    let sorted = extents.sorted { $0.start < $1.start }
    var end: UInt64 = 0
    for extent in sorted {
      guard extent.isValid(inFileOfSize: size), extent.start >= end else {
        throw .damagedExtent(grain: extent.start)
      }
      end = extent.end
    }
    return sorted
  }

  /// Fills `buffer` from byte `offset` on, and returns the number of bytes, 0 at the end of the
  /// file. When it throws, `buffer` is unchanged.
  ///
  /// The buffer is a pointer because it is filled in pieces, and a part of a `MutableRawSpan`
  /// cannot be taken without an underscored function.
  public mutating func read(at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    guard offset < size else { return 0 }
    let wanted = Int(min(UInt64(buffer.count), size - offset))
    let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    var done = 0
    while done < wanted {
      let position = offset + UInt64(done)
      let count = min(wanted - done, unit - Int(position % UInt64(unit)))
      do {
        try readUnit(
          at: position, into: UnsafeMutableRawBufferPointer(rebasing: buffer[done..<(done + count)]))
      } catch {
        if done > 0 { return done }
        throw error
      }
      done += count
    }
    return done
  }

  private mutating func readUnit(at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws {
    let grain = UInt64(SegmentLayout.plaintextByteCountMax)
    let first = offset / grain
    let last = (offset + UInt64(buffer.count) - 1) / grain
    // Opened grains gather here, with zeros where there is no segment; the caller's buffer is
    // filled at the very end.
    let openedCount = Int((last - first + 1) * grain)
    if opened.count < openedCount { opened = [UInt8](repeating: 0, count: openedCount) }
    defer {
      opened.withUnsafeMutableBytes { wipe(UnsafeMutableRawBufferPointer(rebasing: $0[..<openedCount])) }
    }
    var position = firstExtent(endingAfter: first)
    while position < extents.count, extents[position].start <= last {
      let extent = extents[position]
      let skipped = Int(max(first, extent.start) - extent.start)
      let count = Int(min(last + 1, extent.end) - extent.start) - skipped
      try openRun(extent.slice(skipping: skipped, count: count), firstGrain: first)
      position += 1
    }
    let skip = Int(offset - first * grain)
    opened.withUnsafeBytes {
      buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[skip..<(skip + buffer.count)]))
    }
  }

  private mutating func openRun(_ extent: Extent, firstGrain: UInt64) throws {
    let count = extent.storedByteCount
    if stored.count < count { stored = [UInt8](repeating: 0, count: count) }
    let fetched = try stored.withUnsafeMutableBytes {
      try storedBytes(extent.slab, extent.offset, UnsafeMutableRawBufferPointer(rebasing: $0[0..<count]))
    }
    let begin = Int(extent.start - firstGrain) * SegmentLayout.plaintextByteCountMax
    try stored.withUnsafeBytes { stored in
      try opened.withUnsafeMutableBytes { opened in
        var output = OutputRawSpan(
          buffer: opened[begin..<(begin + extent.plaintextByteCount)], initializedCount: 0)
        try cipher.open(stored.bytes.extracting(first: fetched), of: extent.run, key: key, into: &output)
      }
    }
  }

  /// The first extent that ends after `grain`, by bisection.
  private func firstExtent(endingAfter grain: UInt64) -> Int {
    var low = 0
    var high = extents.count
    while low < high {
      let middle = (low + high) / 2
      if extents[middle].end <= grain { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
