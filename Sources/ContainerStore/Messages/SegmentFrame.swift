import EncryptedFile
import SodiumPrimitives

/// The next part of a message's contents: the segments it consists of, and their keys
/// (DELIVERY-PROTOCOL.md, "Contents"). What it says was checked for its form only.
package final class SegmentFrame: Sendable {
  /// Segments of consecutive grains of one file.
  struct Run: Equatable, Sendable {
    /// The file's number in the message.
    var file: UInt32
    /// The first grain.
    var start: UInt64
    var count: UInt32
    /// Plaintext bytes of the last segment; the others are full.
    var lastLength: UInt32

    static let byteCount = 20

    func storedByteCount(_ number: UInt32) -> Int {
      number + 1 == count
        ? Int(lastLength) + SegmentLayout.overheadByteCount : SegmentLayout.storedByteCountMax
    }

    var storedByteCount: Int {
      (Int(count) - 1) * SegmentLayout.storedByteCountMax + storedByteCount(count - 1)
    }

    /// The byte of the file behind the run's last plaintext byte.
    var endByte: UInt64 { (start + UInt64(count) - 1) * SegmentFrame.grain + UInt64(lastLength) }
  }

  package static let segmentCountMax = 256
  /// Files with contents that a frame may reach into.
  static let fileCountMax = 256
  /// Stored bytes: those of 64 full segments.
  package static let contentsByteCountMax = SegmentLayout.segmentsPerUnit * SegmentLayout.storedByteCountMax
  /// Bytes of the longest encoded frame.
  package static let byteCountMax = headByteCount + segmentCountMax * (Run.byteCount + keyByteCount)

  static let keyByteCount = SecretKey.byteCount
  static let headByteCount = 12
  static let grain = UInt64(SegmentLayout.plaintextByteCountMax)

  /// Everything before this position in the message's contents was described by this frame or
  /// earlier ones; what no run covers is zero.
  package let end: UInt64
  /// In order of files and grains.
  let runs: [Run]
  /// Bytes of all segments.
  let contentsByteCount: Int
  /// One for each segment, in order.
  private let keys: SecretKeyList

  /// Decodes the plaintext of a block. `contentsByteCount`: the bytes that came with it. Throws
  /// `invalidArgument`.
  package init(_ block: UnsafeRawBufferPointer, contentsByteCount: Int) throws {
    guard block.count >= Self.headByteCount else { throw Self.malformed("is cut short") }
    end = Self.read(block, 0)
    let runCount = Int(Self.read(block, 8) as UInt32)
    let keysBegin = Self.headByteCount + runCount * Run.byteCount
    guard runCount <= Self.segmentCountMax, keysBegin <= block.count else {
      throw Self.malformed("has \(runCount) runs")
    }
    var runs: [Run] = []
    runs.reserveCapacity(runCount)
    var (segmentCount, storedByteCount) = (0, 0)
    for number in 0..<runCount {
      let begin = Self.headByteCount + number * Run.byteCount
      let run = Run(
        file: Self.read(block, begin), start: Self.read(block, begin + 4),
        count: Self.read(block, begin + 12), lastLength: Self.read(block, begin + 16))
      guard 1...UInt32(Self.segmentCountMax) ~= run.count, run.start < 1 << 48,
        1...UInt32(SegmentLayout.plaintextByteCountMax) ~= run.lastLength
      else { throw Self.malformed("has a run that cannot be") }
      if let last = runs.last {
        let follows =
          last.file < run.file || (last.file == run.file && last.start + UInt64(last.count) <= run.start)
        guard follows else { throw Self.malformed("has runs out of order") }
      }
      segmentCount += Int(run.count)
      storedByteCount += run.storedByteCount
      runs.append(run)
    }
    guard segmentCount <= Self.segmentCountMax, storedByteCount <= Self.contentsByteCountMax,
      storedByteCount == contentsByteCount,
      block.count == keysBegin + segmentCount * Self.keyByteCount
    else {
      throw Self.malformed(
        "has \(segmentCount) segments of \(storedByteCount) bytes, and \(contentsByteCount) came")
    }
    self.runs = runs
    self.contentsByteCount = contentsByteCount
    keys = try SecretKeyList(copying: UnsafeRawBufferPointer(rebasing: block[keysBegin...]))
  }

  /// Lends `body` the keys of all segments.
  func withKeys<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R {
    try keys.withUnsafeBytes { keys throws in try body(keys) }
  }

  private static func read<T: FixedWidthInteger>(_ block: UnsafeRawBufferPointer, _ offset: Int) -> T {
    T(littleEndian: block.loadUnaligned(fromByteOffset: offset, as: T.self))
  }

  private static func malformed(_ what: String) -> ContainerError {
    ContainerError(.invalidArgument, detail: "a frame of the contents \(what)")
  }
}

/// Writes the encoding of a frame into memory, run by run.
struct SegmentFrameWriter {
  private let block: UnsafeMutableRawBufferPointer
  private(set) var runs: [SegmentFrame.Run] = []
  private(set) var segmentCount = 0
  /// Where keys wait until the number of runs is known.
  private static let keysBegin =
    SegmentFrame.headByteCount + SegmentFrame.segmentCountMax * SegmentFrame.Run.byteCount

  /// `block` has room for ``SegmentFrame/byteCountMax`` bytes.
  init(_ block: UnsafeMutableRawBufferPointer) {
    precondition(block.count >= SegmentFrame.byteCountMax, "room for the longest frame")
    self.block = block
  }

  /// Memory for the keys of the next segments.
  func keys(_ count: Int) -> UnsafeMutableRawBufferPointer {
    let begin = Self.keysBegin + segmentCount * SegmentFrame.keyByteCount
    return UnsafeMutableRawBufferPointer(
      rebasing: block[begin..<(begin + count * SegmentFrame.keyByteCount)])
  }

  /// Adds a run whose keys are in ``keys(_:)``.
  mutating func add(_ run: SegmentRun, of file: UInt32) {
    segmentCount += Int(run.count)
    if let last = runs.last, last.file == file, last.start + UInt64(last.count) == run.start,
      last.lastLength == UInt32(SegmentLayout.plaintextByteCountMax)
    {
      runs[runs.count - 1].count += run.count
      runs[runs.count - 1].lastLength = run.lastLength
    } else {
      runs.append(
        SegmentFrame.Run(file: file, start: run.start, count: run.count, lastLength: run.lastLength))
    }
  }

  /// Completes the encoding and returns its length.
  func finish(end: UInt64) -> Int {
    block.storeBytes(of: end.littleEndian, toByteOffset: 0, as: UInt64.self)
    block.storeBytes(of: UInt32(runs.count).littleEndian, toByteOffset: 8, as: UInt32.self)
    for (number, run) in runs.enumerated() {
      let begin = SegmentFrame.headByteCount + number * SegmentFrame.Run.byteCount
      block.storeBytes(of: run.file.littleEndian, toByteOffset: begin, as: UInt32.self)
      block.storeBytes(of: run.start.littleEndian, toByteOffset: begin + 4, as: UInt64.self)
      block.storeBytes(of: run.count.littleEndian, toByteOffset: begin + 12, as: UInt32.self)
      block.storeBytes(of: run.lastLength.littleEndian, toByteOffset: begin + 16, as: UInt32.self)
    }
    let keysByteCount = segmentCount * SegmentFrame.keyByteCount
    let begin = SegmentFrame.headByteCount + runs.count * SegmentFrame.Run.byteCount
    UnsafeMutableRawBufferPointer(rebasing: block[begin...]).copyMemory(
      from: UnsafeRawBufferPointer(rebasing: block[Self.keysBegin..<(Self.keysBegin + keysByteCount)]))
    let end = begin + keysByteCount
    wipe(
      UnsafeMutableRawBufferPointer(
        rebasing: block[max(end, Self.keysBegin)..<max(end, Self.keysBegin + keysByteCount)]))
    return end
  }
}
