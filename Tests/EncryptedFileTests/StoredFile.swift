import EncryptedFile
import Foundation
import SodiumPrimitives

/// A file sealed in memory: what a catalog knows of it, its slabs, and the contents that must be read from them.
///
/// Readers look at the slabs when they read, so a test can damage them in between.
final class StoredFile {
  let key: [UInt8]
  var size: UInt64 = 0
  var extents: [Extent] = []
  var slabs: [UInt32: [UInt8]] = [:]
  var contents: [UInt8] = []

  init(key: [UInt8] = Random.bytes(32)) { self.key = key }

  /// Contents of that length, written by an ``EncryptedFileWriter``.
  convenience init(byteCount: Int, seed: UInt64 = 1, backend: CipherBackend = .preferred) throws {
    self.init()
    try write(deterministicBytes(byteCount, seed: seed), backend: backend)
  }

  /// Gives an empty file its contents.
  func write(
    _ contents: [UInt8], session: Identifier = .random(), backend: CipherBackend = .preferred
  ) throws {
    let writing = try Writing(key: key, session: session, backend: backend)
    try writing.append(contents)
    try writing.finish()
    self.contents = contents
    size = writing.size
    extents = writing.extents
    slabs = [0: writing.slab]
  }

  /// Seals `plaintext` as a run of its own at grain `index` and stores it at the end of a slab.
  func storeRun(
    _ plaintext: [UInt8], index: UInt64, number: WriteNumber, slab: UInt32 = 0,
    by cipher: SegmentCipher = SegmentCipher()
  ) throws {
    let grain = SegmentLayout.plaintextByteCountMax
    let run = SegmentRun(start: index, plaintextByteCount: plaintext.count, writeNumber: number)
    let offset = UInt64(slabs[slab, default: []].count)
    slabs[slab, default: []] += try sealed(
      plaintext, key: key, number: number, index: index, by: cipher)
    extents.append(Extent(run, slab: slab, offset: offset))
    let end = Int(index) * grain + plaintext.count
    if contents.count < end { contents += [UInt8](repeating: 0, count: end - contents.count) }
    contents.replaceSubrange(Int(index) * grain..<end, with: plaintext)
    size = max(size, UInt64(end))
  }

  func storedBytes(_ slab: UInt32, _ offset: UInt64, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    guard let bytes = slabs[slab], offset < UInt64(bytes.count) else { return 0 }
    let begin = Int(offset)
    let end = min(begin + buffer.count, bytes.count)
    bytes.withUnsafeBytes { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[begin..<end])) }
    return end - begin
  }

  func storedBytes(_ run: Extent) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: run.storedByteCount)
    let count = bytes.withUnsafeMutableBytes { storedBytes(run.slab, run.offset, $0) }
    return Array(bytes[0..<count])
  }

  /// The segment of a grain, as a run of its own.
  func segment(_ grain: UInt64) throws -> Extent {
    guard let extent = extents.first(where: { $0.start <= grain && grain < $0.end }) else {
      throw Mismatch("grain \(grain) is a hole")
    }
    return extent.slice(skipping: Int(grain - extent.start), count: 1)
  }

  /// Puts other bytes where the segment of a grain is stored.
  func overwrite(_ grain: UInt64, with bytes: [UInt8]) throws {
    let segment = try segment(grain)
    let begin = Int(segment.offset)
    slabs[segment.slab]!.replaceSubrange(begin..<begin + bytes.count, with: bytes)
  }

  func contents(of grain: UInt64) -> [UInt8] {
    let begin = Int(grain) * SegmentLayout.plaintextByteCountMax
    return Array(contents[begin..<min(begin + SegmentLayout.plaintextByteCountMax, contents.count)])
  }
}

/// A run of segments, sealed.
func sealed(
  _ plaintext: [UInt8], key: [UInt8], number: WriteNumber, index: UInt64,
  by cipher: SegmentCipher = SegmentCipher()
) throws -> [UInt8] {
  let run = SegmentRun(start: index, plaintextByteCount: plaintext.count, writeNumber: number)
  var output = [UInt8](repeating: 0, count: run.storedByteCount)
  try output.withUnsafeMutableBytes { memory in
    var output = OutputRawSpan(buffer: memory, initializedCount: 0)
    var batch = try SegmentBatch(run, key: FileKey(bytes: key), by: cipher)
    try batch.seal(plaintext.span.bytes, as: run, into: &output)
  }
  return output
}

extension SegmentCipher {
  /// Opens a run to the beginning of `output`.
  func open(_ stored: [UInt8], of run: SegmentRun, key: [UInt8], into output: inout [UInt8]) throws {
    try output.withUnsafeMutableBytes { memory in
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      try open(stored.span.bytes, of: run, key: FileKey(bytes: key), into: &output)
    }
  }
}

/// A writer, and the slab to which it stores run after run.
final class Writing {
  private final class Slab {
    var bytes: [UInt8] = []
    var storedByteCounts: [Int] = []
    var reservations: [(first: UInt64, count: Int)] = []
    var next: WriteNumber
    var failure: (any Error)?

    init(_ first: WriteNumber) { next = first }
  }

  private let stored: Slab
  private var writer: EncryptedFileWriter

  init(key: [UInt8], session: Identifier, backend: CipherBackend = .preferred) throws {
    stored = Slab(WriteNumber(session: session, counter: 1))
    writer = try EncryptedFileWriter(
      key: FileKey(bytes: key), cipher: SegmentCipher(backend),
      takeNumbers: { [stored] count in
        defer { stored.next = stored.next.advanced(by: count) }
        stored.reservations.append((stored.next.counter, count))
        return stored.next
      },
      store: { [stored] bytes in
        if let failure = stored.failure { throw failure }
        stored.storedByteCounts.append(bytes.count)
        stored.bytes += bytes
        return (slab: 0, offset: UInt64(stored.bytes.count - bytes.count))
      })
  }

  var size: UInt64 { writer.size }
  var extents: [Extent] { writer.extents }
  var slab: [UInt8] { stored.bytes }
  var storedByteCounts: [Int] { stored.storedByteCounts }
  /// Every reservation of counters: the first, and how many.
  var reservations: [(first: UInt64, count: Int)] { stored.reservations }
  /// When set, storing throws it.
  var storeFailure: (any Error)? {
    get { stored.failure }
    set { stored.failure = newValue }
  }

  /// Numbers that are taken from here on belong to another session.
  func begin(session: Identifier) { stored.next = WriteNumber(session: session, counter: 1) }

  func append(_ bytes: [UInt8]) throws { try writer.append(bytes.span.bytes) }
  func finish() throws { try writer.finish() }
}

/// A reader whose buffers lie between guard bytes: what a read did not report, it must not have written.
final class Reading {
  private static let pattern: UInt8 = 0xC3
  private static let guardByteCount = 16
  private var reader: EncryptedFileReader

  init(
    _ file: StoredFile, _ backend: CipherBackend = .preferred,
    storedBytes: EncryptedFileReader.StoredBytes? = nil
  ) throws {
    reader = try EncryptedFileReader(
      key: FileKey(bytes: file.key), size: file.size, extents: file.extents,
      cipher: SegmentCipher(backend), storedBytes: storedBytes ?? file.storedBytes)
  }

  /// Throws a ``Mismatch`` when a byte outside the result was written, also by a read that throws.
  func read(at offset: UInt64, count: Int) throws -> [UInt8] {
    let begin = Self.guardByteCount
    var buffer = [UInt8](repeating: Self.pattern, count: count + 2 * begin)
    let outcome = Result {
      try buffer.withUnsafeMutableBytes {
        try reader.read(at: offset, into: UnsafeMutableRawBufferPointer(rebasing: $0[begin..<begin + count]))
      }
    }
    let done = (try? outcome.get()) ?? 0
    guard done <= count,
      buffer.withUnsafeBytes({ Self.isUntouched($0[0..<begin]) && Self.isUntouched($0[(begin + done)...]) })
    else { throw Mismatch("a read of \(count) bytes at \(offset) wrote more than it reported: \(outcome)") }
    return Array(buffer[begin..<begin + (try outcome.get())])
  }

  private static func isUntouched(_ bytes: Slice<UnsafeRawBufferPointer>) -> Bool {
    let bytes = UnsafeRawBufferPointer(rebasing: bytes)
    // Every byte equals the one before it.
    return bytes[0] == pattern && memcmp(bytes.baseAddress!, bytes.baseAddress! + 1, bytes.count - 1) == 0
  }

  /// Reads from the beginning, so many bytes at a time, up to the end or to the first error.
  func readInOrder(pieces: Int) -> (released: [UInt8], failure: (any Error)?) {
    var released: [UInt8] = []
    do {
      while true {
        let piece = try read(at: UInt64(released.count), count: pieces)
        if piece.isEmpty { return (released, nil) }
        released += piece
      }
    } catch {
      return (released, error)
    }
  }
}
