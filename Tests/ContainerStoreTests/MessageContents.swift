import Foundation
import Locks
import SodiumPrimitives

@testable import ContainerStore

// Frames of a message's contents, made and read by the page DELIVERY-PROTOCOL.md alone: as a peer without a container does.

/// One frame: its block and the sealed segments.
struct TestFrame: FrameContents {
  /// `file`, first grain, number of segments and length of the last one, as they stand in the block.
  struct Run: Equatable {
    var file: UInt32
    var start: UInt64
    var count: UInt32 = 1
    var lastLength: UInt32
  }

  var end: UInt64
  var runs: [Run] = []
  var keys: [UInt8] = []
  var contents: [UInt8] = []

  static let grain = 16_384
  static let overhead = 41
  private static let cipher = Guarded(SecretStreamCipher())

  var byteCount: Int { contents.count }

  func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) {
    contents.withUnsafeBytes {
      buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[offset..<(offset + buffer.count)]))
    }
  }

  var block: [UInt8] {
    func bytes<T: FixedWidthInteger>(_ value: T) -> [UInt8] {
      withUnsafeBytes(of: value.littleEndian) { Array($0) }
    }
    return bytes(end) + bytes(UInt32(runs.count))
      + runs.flatMap { bytes($0.file) + bytes($0.start) + bytes($0.count) + bytes($0.lastLength) } + keys
  }

  init(end: UInt64) { self.end = end }

  /// Reads what a sender made.
  init(block: [UInt8], contents: [UInt8]) {
    func number<T: FixedWidthInteger>(_ offset: Int) -> T {
      block[offset..<(offset + MemoryLayout<T>.size)].reversed().reduce(0) { $0 << 8 | T($1) }
    }
    end = number(0)
    let count = Int(number(8) as UInt32)
    for i in 0..<count {
      let begin = 12 + 20 * i
      runs.append(
        Run(
          file: number(begin), start: number(begin + 4), count: number(begin + 12),
          lastLength: number(begin + 16)))
    }
    keys = Array(block[(12 + 20 * count)...])
    self.contents = contents
  }

  private static func associatedData(_ length: Int) -> [UInt8] {
    Array("OD1-segment".utf8) + [0, 0, 0, 0, 0]
      + withUnsafeBytes(of: UInt32(length).littleEndian) { Array($0) }
      + withUnsafeBytes(of: UInt32(grain).littleEndian) { Array($0) }
  }

  /// Adds a grain, sealed under a key of its own.
  mutating func add(_ plaintext: [UInt8], file: Int, grain: Int) {
    let key = Random.bytes(32)
    keys += key
    contents += Self.cipher.withLock {
      $0.seal(plaintext, key: key, header: Random.bytes(24), ad: Self.associatedData(plaintext.count))
    }
    if let last = runs.last, last.file == UInt32(file), last.start + UInt64(last.count) == UInt64(grain),
      last.lastLength == UInt32(Self.grain)
    {
      runs[runs.count - 1].count += 1
      runs[runs.count - 1].lastLength = UInt32(plaintext.count)
    } else {
      runs.append(Run(file: UInt32(file), start: UInt64(grain), lastLength: UInt32(plaintext.count)))
    }
  }

  /// The bytes of a file's segments, when grains of zeros are left out.
  static func storedByteCount(of file: [UInt8]) -> Int {
    stride(from: 0, to: file.count, by: grain).reduce(0) { sum, begin in
      let plaintext = file[begin..<min(begin + grain, file.count)]
      return plaintext.contains { $0 != 0 } ? sum + plaintext.count + overhead : sum
    }
  }

  /// Opens its segments: file, first byte, plaintext.
  func opened() throws -> [(file: Int, begin: Int, plaintext: [UInt8])] {
    var found: [(file: Int, begin: Int, plaintext: [UInt8])] = []
    var (offset, key) = (0, 0)
    for run in runs {
      for index in 0..<run.count {
        let length = index + 1 == run.count ? Int(run.lastLength) : Self.grain
        let stored = Array(contents[offset..<(offset + length + Self.overhead)])
        let plaintext = try Self.cipher.withLock {
          try $0.open(stored, key: Array(keys[key..<(key + 32)]), ad: Self.associatedData(length))
        }
        found.append((Int(run.file), (Int(run.start) + Int(index)) * Self.grain, plaintext))
        offset += stored.count
        key += 32
      }
    }
    return found
  }

  /// The next frame of some files from a position on, until `end` at the latest, with segments of `byteCount` bytes of plaintext at
  /// most in all, and one at least. Grains of zeros are left out. Nil at the end.
  static func next(
    of files: [[UInt8]], from position: Int, until end: Int, byteCount: Int = 1 << 20
  ) -> TestFrame? {
    var frame = TestFrame(end: UInt64(position))
    var (begin, room, segments) = (0, byteCount, 0)
    for (index, file) in files.enumerated() {
      defer { begin += file.count }
      guard begin + file.count > position, begin < end else { continue }
      var offset = max(position - begin, 0)
      while offset < file.count {
        let next = min(offset + Self.grain, file.count)
        guard begin + next <= end else { return frame.end > position ? frame : nil }
        let plaintext = Array(file[offset..<next])
        if plaintext.contains(where: { $0 != 0 }) {
          guard segments == 0 || room >= plaintext.count, segments < 256,
            frame.contents.count + plaintext.count + Self.overhead <= 64 * 16_425
          else { return frame }
          frame.add(plaintext, file: index, grain: offset / Self.grain)
          room -= plaintext.count
          segments += 1
        }
        offset = next
        frame.end = UInt64(begin + next)
        if segments >= 256 { return frame }
      }
      if index % 200 == 199, frame.end > position { return frame }
    }
    return frame.end > position ? frame : nil
  }
}

extension Arrival {
  func append(_ frame: TestFrame) throws {
    let decoded = try frame.block.withUnsafeBytes {
      try SegmentFrame($0, contentsByteCount: frame.contents.count)
    }
    try append(decoded, frame)
  }
}

extension OutboxReader {
  /// The next frame, with at most so many bytes of segments.
  func next(
    contentsByteCount: Int = SegmentFrame.contentsByteCountMax
  ) throws -> (frame: TestFrame, isLast: Bool) {
    var block = [UInt8](repeating: 0xaa, count: SegmentFrame.byteCountMax)
    var contents = [UInt8](repeating: 0xaa, count: contentsByteCount)
    let read = try block.withUnsafeMutableBytes { block in
      try contents.withUnsafeMutableBytes { contents in try next(block: block, contents: contents) }
    }
    return (
      TestFrame(
        block: Array(block[..<read.blockByteCount]), contents: Array(contents[..<read.contentsByteCount])),
      read.isLast
    )
  }
}

extension Container {
  /// What the files of a message in the outbox hold, from a position on. Throws when the frames of all of
  /// it have more or fewer bytes of segments than the outbox counts.
  func readOutbox(_ number: UInt64, from position: UInt64 = 0) throws -> [UInt8] {
    let files = try outboxFiles(number, from: 0, limit: .max)
    var begins: [Int] = []
    var byteCount = 0
    for file in files {
      begins.append(byteCount)
      byteCount += Int(file.size)
    }
    var bytes = [UInt8](repeating: 0, count: byteCount)
    let reader = try outboxReader(number, from: position)
    var done = Int(position)
    var storedByteCount = 0
    while done < byteCount {
      let (frame, isLast) = try reader.next()
      storedByteCount += frame.contents.count
      guard frame.end > UInt64(done), isLast == (frame.end == UInt64(byteCount)) else {
        throw ContainerError(.invalidArgument, detail: "a frame that does not go on")
      }
      for (file, begin, plaintext) in try frame.opened() {
        let place = begins[file] + begin
        guard place >= done, place + plaintext.count <= Int(frame.end),
          begin + plaintext.count <= Int(files[file].size)
        else { throw ContainerError(.invalidArgument, detail: "a segment outside of its frame") }
        bytes.replaceSubrange(place..<(place + plaintext.count), with: plaintext)
      }
      done = Int(frame.end)
    }
    let counted = try outboxEntries().first { $0.number == number }?.storedByteCount
    guard position > 0 || counted == UInt64(storedByteCount) else {
      throw ContainerError(
        .invalidArgument, detail: "\(storedByteCount) bytes of segments, counted otherwise")
    }
    return Array(bytes[Int(position)...])
  }
}
