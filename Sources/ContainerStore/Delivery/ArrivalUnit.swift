import EncryptedFile
import SodiumPrimitives

/// The file that the next byte of an arrival belongs to.
final class GrowingFile {
  let index: Int
  let identity: NewFile
  let size: UInt64
  /// Of it, bytes that are sealed: whole grains, or all.
  var sealedByteCount: UInt64
  private let key: FileKey
  /// The key of the session under which the last bytes were sealed.
  private var writerKey: WriterKey?

  init(index: Int, identity: NewFile, size: UInt64, sealedByteCount: UInt64, key: consuming FileKey) {
    self.index = index
    self.identity = identity
    self.size = size
    self.sealedByteCount = sealedByteCount
    self.key = key
  }

  var rest: UInt64 { size - sealedByteCount }

  /// Seals the file's next bytes as one run (see `SegmentCipher.seal`).
  func seal(
    _ plaintext: UnsafeRawBufferPointer, _ number: WriteNumber, by cipher: SegmentCipher,
    into output: UnsafeMutableRawBufferPointer
  ) throws {
    if writerKey?.session != number.session { writerKey = try key.writerKey(session: number.session) }
    cipher.seal(
      plaintext, key: key, writerKey: writerKey!,
      index: sealedByteCount / UInt64(SegmentLayout.plaintextByteCountMax), counter: number.counter,
      into: output)
  }
}

/// Sealed runs of one or more files that are going to be stored with one write and one commit.
struct ArrivalUnit {
  struct Run {
    var index: Int
    var file: NewFile
    var extent: Extent
    /// Bytes of the file with it.
    var byteCount: UInt64
    var isFirst: Bool { extent.start == 0 }
  }

  /// So that a unit of tiny files does not hold others up.
  static let runCountMax = 2048

  let context: WorkerContext
  private(set) var runs: [Run] = []
  private(set) var plaintextByteCount: UInt64 = 0
  /// Of the last run: write numbers that are taken for it and not used.
  private var numbersLeft = 0
  private var storedByteCount = 0

  init(_ context: WorkerContext) { self.context = context }

  var sealed: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: context.output[0..<storedByteCount])
  }

  /// There is no room for a whole segment more.
  var isFull: Bool { room == 0 }

  /// Plaintext bytes that it has room for, in whole segments.
  private var room: Int {
    guard runs.count < Self.runCountMax else { return 0 }
    return (context.output.count - storedByteCount) / SegmentLayout.storedByteCountMax
      * SegmentLayout.plaintextByteCountMax
  }

  /// Seals the next bytes of a file, as many as there is room for, and returns how many, at least one grain or what ends the file.
  mutating func seal(
    _ plaintext: UnsafeRawBufferPointer, of file: GrowingFile, in container: Container
  ) throws -> Int {
    let grain = SegmentLayout.plaintextByteCountMax
    let isEnd = UInt64(plaintext.count) == file.rest
    var count = plaintext.count
    if count > room { count = room }
    precondition(count > 0, "a full unit is stored first")
    let segments = Int(SegmentLayout.segmentCount(UInt64(count)))
    precondition(
      count % grain == 0 || (isEnd && count == plaintext.count), "only a file's last grain is short")
    let start = file.sealedByteCount / UInt64(grain)
    let goesOn = runs.last.map { $0.index == file.index } ?? false
    let number: WriteNumber
    if goesOn, numbersLeft >= segments {
      number = runs.last!.extent.writeNumber.advanced(by: Int(runs.last!.extent.count))
      numbersLeft -= segments
    } else {
      // For what is going to follow in this unit as well: what stands together in the file is one run then.
      let wanted = Int(min(SegmentLayout.segmentCount(file.rest), UInt64(SegmentLayout.segmentsPerUnit)))
      let taken = max(segments, wanted)
      number = container.session.take(taken)
      numbersLeft = taken - segments
    }
    let stored = SegmentLayout.storedByteCount(count)
    try file.seal(
      UnsafeRawBufferPointer(rebasing: plaintext[0..<count]), number, by: context.cipher,
      into: UnsafeMutableRawBufferPointer(
        rebasing: context.output[storedByteCount..<(storedByteCount + stored)]))
    let extent = Extent(
      start: start, count: UInt32(segments), lastLength: UInt32(count - (segments - 1) * grain),
      writeNumber: number, slab: 0, offset: UInt64(storedByteCount))
    file.sealedByteCount += UInt64(count)
    if goesOn, let joined = runs.last!.extent.joined(with: extent) {
      runs[runs.count - 1].extent = joined
      runs[runs.count - 1].byteCount = file.sealedByteCount
    } else {
      runs.append(
        Run(index: file.index, file: file.identity, extent: extent, byteCount: file.sealedByteCount))
    }
    storedByteCount += stored
    plaintextByteCount += UInt64(count)
    return count
  }

  /// The runs' extents in the slab that the unit was appended to.
  func runs(in place: (slab: UInt32, offset: UInt64)) -> [Run] {
    runs.map { run in
      var run = run
      run.extent.slab = place.slab
      run.extent.offset += place.offset
      return run
    }
  }

  mutating func removeAll() {
    runs.removeAll(keepingCapacity: true)
    plaintextByteCount = 0
    numbersLeft = 0
    storedByteCount = 0
  }
}
