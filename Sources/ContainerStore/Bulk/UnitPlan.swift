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

/// Divides files into pieces and packs the pieces into units of at most 1 MiB, so that large files
/// are spread over the threads and many small ones share a write.
struct UnitPlan {
  private(set) var units: [[Piece]] = []
  private(set) var byteCount: UInt64 = 0
  private(set) var piecesPerFile: [Int] = []
  private var segmentsInLast = 0

  /// Adds a file whose contents are not in a store.
  mutating func addFile(byteCount: UInt64) {
    beginFile()
    let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    var done: UInt64 = 0
    while done < byteCount {
      let count = Int(min(byteCount - done, UInt64(unit)))
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
    beginFile()
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

  private mutating func beginFile() { piecesPerFile.append(0) }

  private mutating func add(_ piece: Piece, segments: Int) {
    if units.isEmpty || segmentsInLast + segments > SegmentLayout.segmentsPerUnit {
      units.append([])
      segmentsInLast = 0
    }
    units[units.count - 1].append(piece)
    segmentsInLast += segments
    byteCount += UInt64(piece.byteCount)
    piecesPerFile[piece.file] += 1
  }
}
