import EncryptedFile
import SodiumPrimitives

/// The file that the next byte of an arrival belongs to.
final class GrowingFile {
  let index: Int
  let identity: NewFile
  let size: UInt64
  /// Of it, bytes that are sealed: whole grains, or all.
  var sealedByteCount: UInt64
  let key: FileKey
  let writerKey: WriterKey

  init(
    index: Int, identity: NewFile, size: UInt64, sealedByteCount: UInt64, key: consuming FileKey,
    writerKey: consuming WriterKey
  ) {
    self.index = index
    self.identity = identity
    self.size = size
    self.sealedByteCount = sealedByteCount
    self.key = key
    self.writerKey = writerKey
  }

  var rest: UInt64 { size - sealedByteCount }
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
  /// Of the last run: counters that are taken for it and not used.
  private var countersLeft = 0
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
    let counter: UInt64
    if goesOn, countersLeft >= segments {
      counter = runs.last!.extent.writeNumber.counter + UInt64(runs.last!.extent.count)
      countersLeft -= segments
    } else {
      // For what is going to follow in this unit as well: what stands together in the file is one run then.
      let wanted = Int(min(SegmentLayout.segmentCount(file.rest), UInt64(SegmentLayout.segmentsPerUnit)))
      let taken = max(segments, wanted)
      counter = container.session.takeCounters(taken)
      countersLeft = taken - segments
    }
    let stored = SegmentLayout.storedByteCount(count)
    context.cipher.seal(
      UnsafeRawBufferPointer(rebasing: plaintext[0..<count]),
      of: FileIdentity(container: container.id, file: file.identity.id), key: file.key,
      writerKey: file.writerKey, index: start, counter: counter,
      into: UnsafeMutableRawBufferPointer(
        rebasing: context.output[storedByteCount..<(storedByteCount + stored)]))
    let extent = Extent(
      start: start, count: UInt32(segments), lastLength: UInt32(count - (segments - 1) * grain),
      writeNumber: WriteNumber(session: container.session.id, counter: counter), slab: 0,
      offset: UInt64(storedByteCount))
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
    countersLeft = 0
    storedByteCount = 0
  }
}
