import EncryptedFile

/// A part of a file that one thread handles in one step.
struct Piece: Sendable {
  /// Index in the job's list of files.
  var file: Int
  /// Index of the first grain.
  var start: UInt64
  /// Plaintext bytes.
  var byteCount: Int
  /// The stored run with the sealed bytes; nil if the contents are not in a store.
  var source: Extent?
}

/// Pieces that are stored with one write.
struct Unit: Sendable {
  var pieces: [Piece]
  /// The slab of a file that has units of its own; nil when any slab will do.
  var slab: SharedSlab?
}

/// Divides files into pieces and packs the pieces into units of at most 1 MiB, so that large files
/// are spread over the threads and many small ones share a write. The units of a large file share a
/// slab, or as few as it fits into, so that the loss of a slab costs few files.
struct UnitPlan {
  private static let slabByteCountMax = SlabStore.byteCountMax - 1 << 20
  private static let unitByteCountMax = UInt64(
    SegmentLayout.segmentsPerUnit * SegmentLayout.storedByteCountMax)

  private(set) var units: [Unit] = []
  private(set) var byteCount: UInt64 = 0
  private(set) var piecesPerFile: [Int] = []
  private var segmentsInLast = 0
  /// Bytes of the last file that have no slab yet; nil when it is not large.
  private var byteCountLeft: UInt64?
  private var slab: SharedSlab?
  private var roomInSlab: UInt64 = 0

  /// Adds a file whose contents are not in a store. Of `ranges`, whole grains are stored, and the rest
  /// is holes; nil stands for the whole file.
  mutating func addFile(byteCount: UInt64, ranges: [Range<UInt64>]? = nil) {
    guard let ranges else {
      beginFile(storedByteCount: Self.storedByteCount(byteCount))
      return add(0..<byteCount)
    }
    let grain = UInt64(SegmentLayout.plaintextByteCountMax)
    var whole: [Range<UInt64>] = []
    for range in ranges where range.lowerBound < byteCount {
      let begin = range.lowerBound / grain * grain
      let end = min(byteCount, (range.upperBound + grain - 1) / grain * grain)
      if let last = whole.last, begin <= last.upperBound {
        whole[whole.count - 1] = last.lowerBound..<max(last.upperBound, end)
      } else {
        whole.append(begin..<end)
      }
    }
    beginFile(storedByteCount: whole.reduce(0) { $0 + Self.storedByteCount($1.upperBound - $1.lowerBound) })
    for range in whole { add(range) }
  }

  private static func storedByteCount(_ byteCount: UInt64) -> UInt64 {
    SegmentLayout.segmentCount(byteCount) &* UInt64(SegmentLayout.storedByteCountMax)
  }

  private mutating func add(_ range: Range<UInt64>) {
    let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    var done = range.lowerBound
    while done < range.upperBound {
      let count = Int(min(range.upperBound - done, UInt64(unit)))
      add(
        Piece(
          file: piecesPerFile.count - 1, start: done / UInt64(SegmentLayout.plaintextByteCountMax),
          byteCount: count),
        segments: Int(SegmentLayout.segmentCount(UInt64(count))))
      done += UInt64(count)
    }
  }

  /// Adds a stored file. Returns the number of its pieces.
  @discardableResult
  mutating func addFile(extents: [Extent]) -> Int {
    beginFile(storedByteCount: extents.reduce(0) { $0 + UInt64($1.storedByteCount) })
    for extent in extents {
      var skipped = 0
      while skipped < extent.count {
        let run = extent.slice(
          skipping: skipped, count: min(Int(extent.count) - skipped, SegmentLayout.segmentsPerUnit))
        add(
          Piece(
            file: piecesPerFile.count - 1, start: run.start, byteCount: run.plaintextByteCount, source: run),
          segments: Int(run.count))
        skipped += Int(run.count)
      }
    }
    return piecesPerFile[piecesPerFile.count - 1]
  }

  private mutating func beginFile(storedByteCount: UInt64) {
    piecesPerFile.append(0)
    byteCountLeft = storedByteCount > Self.unitByteCountMax ? storedByteCount : nil
    if byteCountLeft != nil { segmentsInLast = SegmentLayout.segmentsPerUnit }
    slab = nil
    roomInSlab = 0
  }

  /// The slab of the next unit of the last file.
  private mutating func slabOfUnit() -> SharedSlab? {
    guard let left = byteCountLeft else { return nil }
    if roomInSlab < min(left, Self.unitByteCountMax) {
      roomInSlab = min(left, Self.slabByteCountMax)
      slab = SharedSlab(byteCount: roomInSlab)
    }
    let count = min(left, Self.unitByteCountMax)
    roomInSlab -= count
    byteCountLeft = left - count
    slab!.expectUnit()
    return slab
  }

  private mutating func add(_ piece: Piece, segments: Int) {
    if units.isEmpty || segmentsInLast + segments > SegmentLayout.segmentsPerUnit {
      units.append(Unit(pieces: [], slab: slabOfUnit()))
      segmentsInLast = 0
    }
    units[units.count - 1].pieces.append(piece)
    segmentsInLast += segments
    byteCount += UInt64(piece.byteCount)
    piecesPerFile[piece.file] += 1
  }
}
