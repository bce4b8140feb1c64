import SodiumPrimitives

@testable import ContainerStore
@testable import EncryptedFile

extension Target {
  /// A small file with holes, its list of extents, its size and its stored bytes changed at will. What is read is zeros where no
  /// extent is, and else what was sealed for that grain, or nothing.
  ///
  /// Input: number of extents (low three bits of a byte), each a byte for the true extent that it starts from, a byte of flags for
  /// what is changed, and the masks; a flag and the mask of the size; edits of the stored bytes.
  static let segments = Target(
    name: "segments", inputByteCountMax: 1024,
    seeds: {
      [Seed("whole", [4, 0, 0, 1, 0, 2, 0, 3, 0, 0]), Seed("sparse", [1, 2, 0, 0]), Seed("empty", [])]
    },
    accepts: { bytes in
      var input = Input(bytes)
      let extents = (0..<(input.byte() & 7)).map { _ in Self.extent(&input) }
      var size = StoredSample.size
      if input.byte() & 1 == 1 { size ^= input.number(UInt64.self) }
      var stored = StoredSample.shared.stored
      while !input.isEmpty { Edit(&input).apply(to: &stored) }
      for extent in extents { try openRaw(extent, stored) }
      guard let sorted = try? EncryptedFileReader.checked(extents, size: size) else { return false }
      var end: UInt64 = 0
      for extent in sorted {
        require(extent.isValid(inFileOfSize: size), "an extent that cannot be was accepted")
        require(extent.start >= end, "extents that overlap were accepted")
        end = extent.end
      }
      return try readAround(extents: sorted, size: size, stored)
    })

  private static func extent(_ input: inout Input) -> Extent {
    let sample = StoredSample.shared.extents
    var extent = sample[Int(input.byte()) % sample.count]
    let flags = input.byte()
    if flags & 1 != 0 { extent.start ^= input.number(UInt64.self) }
    if flags & 2 != 0 { extent.count ^= input.number(UInt32.self) }
    if flags & 4 != 0 { extent.lastLength ^= input.number(UInt32.self) }
    if flags & 8 != 0 { extent.slab ^= input.number(UInt32.self) }
    if flags & 16 != 0 { extent.offset ^= input.number(UInt64.self) }
    if flags & 32 != 0 { extent.writeNumber.counter ^= input.number(UInt64.self) }
    if flags & 64 != 0 { extent.writeNumber.session = Known.journal }
    return extent
  }

  /// The run alone, over whatever is stored at its place.
  private static func openRaw(_ run: Extent, _ stored: [UInt8]) throws {
    guard run.isValid(inFileOfSize: 1 << 62 - 1), run.count <= SegmentLayout.segmentsPerUnit else { return }
    let begin = Int(clamping: run.offset)
    let bytes = stored.dropFirst(begin).prefix(run.storedByteCount)
    var output = [UInt8](repeating: 0, count: run.plaintextByteCount)
    do {
      try output.withUnsafeMutableBytes { memory in
        var output = OutputRawSpan(buffer: memory, initializedCount: 0)
        try SegmentCipher().open(bytes.span.bytes, of: run.run, key: StoredSample.key(), into: &output)
      }
    } catch is SegmentError {
      return
    }
    requireSealed(output, from: run.start, "a run that was never sealed opened")
  }

  private static func requireSealed(_ plaintext: [UInt8], from grain: UInt64, _ claim: String) {
    let count = SegmentLayout.plaintextByteCountMax
    for begin in stride(from: 0, to: plaintext.count, by: count) {
      let sealed = StoredSample.plaintext(ofGrain: grain + UInt64(begin / count))
      require(sealed == Array(plaintext[begin..<min(begin + count, plaintext.count)]), claim)
    }
  }

  /// Reads some grains from each extent's start on, and from the beginning; whether everything could be read.
  private static func readAround(extents: [Extent], size: UInt64, _ stored: [UInt8]) throws -> Bool {
    var reader = try EncryptedFileReader(
      key: StoredSample.key(), size: size, extents: extents, cipher: SegmentCipher(),
      storedBytes: { slab, offset, buffer in
        guard slab == 0, offset < UInt64(stored.count) else { return 0 }
        let part = stored[Int(offset)...].prefix(buffer.count)
        buffer.copyBytes(from: part)
        return part.count
      })
    let grain = UInt64(SegmentLayout.plaintextByteCountMax)
    var everything = true
    for first in Set([0] + extents.map(\.start)).sorted() {
      var buffer = [UInt8](repeating: 0xee, count: 3 * Int(grain))
      let count: Int
      do {
        count = try buffer.withUnsafeMutableBytes { try reader.read(at: first * grain, into: $0) }
      } catch is SegmentError {
        require(buffer.allSatisfy { $0 == 0xee }, "a read that threw left something in the buffer")
        everything = false
        continue
      }
      require(UInt64(count) == min(UInt64(buffer.count), size - min(size, first * grain)), "a short read")
      for begin in stride(from: 0, to: count, by: Int(grain)) {
        let index = first + UInt64(begin) / grain
        let part = Array(buffer[begin..<min(begin + Int(grain), count)])
        let isStored = extents.contains { $0.start <= index && index < $0.end }
        let sealed = isStored ? StoredSample.plaintext(ofGrain: index) ?? [] : []
        require(!isStored || !sealed.isEmpty, "something was read that was never sealed")
        require(part.starts(with: sealed.prefix(part.count)), "other contents than were sealed were read")
        require(part.dropFirst(sealed.count).allSatisfy { $0 == 0 }, "a hole does not read as zeros")
      }
    }
    return everything
  }
}

/// A file of seven grains with a hole and a short grain in the middle.
private struct StoredSample: Sendable {
  static let shared = make()
  static let size = 7 * UInt64(SegmentLayout.plaintextByteCountMax) - 100

  private(set) var stored: [UInt8] = []
  private(set) var extents: [Extent] = []

  /// Grains with their lengths, run by run.
  private static let runs: [(start: UInt64, lengths: [Int])] = [
    (0, [100]), (1, [SegmentLayout.plaintextByteCountMax, 50]), (4, [10]), (6, [300]),
  ]

  static func key() throws -> FileKey { FileKey(try Known.key()) }

  /// What was sealed for a grain; nil when nothing was.
  static func plaintext(ofGrain grain: UInt64) -> [UInt8]? {
    for (start, lengths) in runs where grain >= start && grain - start < UInt64(lengths.count) {
      let length = lengths[Int(grain - start)]
      return (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ Int(grain) &+ 1) }
    }
    return nil
  }

  private static func make() -> StoredSample {
    var sample = StoredSample()
    let cipher = SegmentCipher()
    do {
      let key = try key()
      var counter: UInt64 = 1
      for (start, lengths) in runs {
        let plaintext = lengths.indices.flatMap { Self.plaintext(ofGrain: start + UInt64($0))! }
        let run = SegmentRun(
          start: start, plaintextByteCount: plaintext.count,
          writeNumber: WriteNumber(session: Known.session, counter: counter))
        var output = [UInt8](repeating: 0, count: run.storedByteCount)
        try output.withUnsafeMutableBytes { memory in
          var output = OutputRawSpan(buffer: memory, initializedCount: 0)
          var batch = try SegmentBatch(run, key: key, by: cipher)
          try batch.seal(plaintext.span.bytes, as: run, into: &output)
        }
        sample.extents.append(Extent(run, slab: 0, offset: UInt64(sample.stored.count)))
        sample.stored += output
        counter += UInt64(lengths.count)
      }
    } catch {
      fatalError("the sample file cannot be sealed: \(error)")
    }
    return sample
  }
}
