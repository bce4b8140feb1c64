import EncryptedFile
import SodiumPrimitives

/// The file that contains the next byte of an arrival.
final class GrowingFile {
  let index: Int
  let identity: NewFile
  let size: UInt64
  /// Bytes of the file that are sealed: whole grains, or all of its bytes.
  var sealedByteCount: UInt64
  let key: FileKey

  init(index: Int, identity: NewFile, size: UInt64, sealedByteCount: UInt64, key: consuming FileKey) {
    self.index = index
    self.identity = identity
    self.size = size
    self.sealedByteCount = sealedByteCount
    self.key = key
  }

  var rest: UInt64 { size - sealedByteCount }
}

/// A unit of an arrival: sealed runs of one or more files, stored with one write and one commit.
struct ArrivalUnit {
  /// A stored run, whose owner is the number of the file in the message.
  struct Run {
    var stored: StoredRun
    var file: NewFile
    /// Bytes of the file up to the end of this run.
    var byteCount: UInt64
    var index: Int { stored.owner }
    var isFirst: Bool { stored.extent.start == 0 }
  }

  /// Limits the size of the unit's commit, so that a unit of tiny files does not delay other
  /// commits.
  static let runCountMax = 2048

  private var unit: SealedUnit
  /// The file of each run in the unit, and the file's bytes up to the end of the run.
  private var files: [(file: NewFile, byteCount: UInt64)] = []
  private(set) var plaintextByteCount: UInt64 = 0
  /// Write numbers that were taken for the last run and not used yet.
  private var numbersLeft = 0

  init(_ context: WorkerContext) { unit = SealedUnit(context) }

  var context: WorkerContext { unit.context }
  var isEmpty: Bool { unit.runs.isEmpty }
  var sealed: UnsafeRawBufferPointer { unit.sealed }

  /// Whether there is no room for another whole segment.
  var isFull: Bool { room == 0 }

  /// Plaintext bytes for which the unit has room, in whole segments.
  private var room: Int {
    guard unit.runs.count < Self.runCountMax else { return 0 }
    return unit.room / SegmentLayout.storedByteCountMax * SegmentLayout.plaintextByteCountMax
  }

  /// Seals as many of a file's next bytes as there is room for, and returns their number: at least
  /// one grain, or the rest of the file.
  mutating func seal(
    _ plaintext: UnsafeRawBufferPointer, of file: GrowingFile, in store: Store
  ) throws -> Int {
    let grain = SegmentLayout.plaintextByteCountMax
    let isEnd = UInt64(plaintext.count) == file.rest
    let count = min(plaintext.count, room)
    precondition(count > 0, "a full unit is stored first")
    precondition(
      count % grain == 0 || (isEnd && count == plaintext.count), "only a file's last grain is short")
    let number = takeNumbers(Int(SegmentLayout.segmentCount(UInt64(count))), for: file, in: store)
    let run = SegmentRun(
      start: file.sealedByteCount / UInt64(grain), plaintextByteCount: count, writeNumber: number)
    var batch = try SegmentBatch(run, key: file.key, by: context.cipher)
    unit.add(CollectionOfOne(run), of: file.index) {
      batch.seal(plaintext.bytes.extracting(first: count), as: run, into: &$0)
    }
    file.sealedByteCount += UInt64(count)
    if files.count == unit.runs.count {
      files[files.count - 1].byteCount = file.sealedByteCount
    } else {
      files.append((file.identity, file.sealedByteCount))
    }
    plaintextByteCount += UInt64(count)
    return count
  }

  /// Consecutive write numbers for the next segments of a file. They continue those of the last run
  /// if it belongs to the same file, so that consecutive segments of the file form one run.
  private mutating func takeNumbers(_ count: Int, for file: GrowingFile, in store: Store) -> WriteNumber {
    if let last = unit.runs.last, last.owner == file.index, numbersLeft >= count {
      numbersLeft -= count
      return last.extent.writeNumber.advanced(by: Int(last.extent.count))
    }
    let expected = Int(min(SegmentLayout.segmentCount(file.rest), UInt64(SegmentLayout.segmentsPerUnit)))
    let taken = max(count, expected)
    numbersLeft = taken - count
    return store.session.take(taken)
  }

  /// The runs, with their locations in the slab that the unit was appended to.
  func runs(at location: SlabStore.Location) -> [Run] {
    zip(unit.runs(at: location), files).map { Run(stored: $0, file: $1.file, byteCount: $1.byteCount) }
  }

  mutating func removeAll() {
    unit.removeAll()
    files.removeAll(keepingCapacity: true)
    plaintextByteCount = 0
    numbersLeft = 0
  }
}
