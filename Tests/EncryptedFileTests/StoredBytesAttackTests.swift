import EncryptedFile
import SodiumPrimitives
import TestSupport
import Testing

/// Whatever somebody who can write to the disk does to stored segments: it is noticed at the right grain, no byte of the
/// grain comes out, and the other grains still read.
struct StoredBytesAttackTests {
  static let grain = SegmentLayout.plaintextByteCountMax
  static let stored = SegmentLayout.storedByteCountMax
  static let session = Identifier.random()

  /// Grains 0 … 3 are a run that ends with 1000 bytes, 4 … 5 are runs of 70 bytes.
  private func file(key: [UInt8] = Random.bytes(32), seed: UInt64 = 7) throws -> StoredFile {
    let file = StoredFile(key: key)
    try file.storeRun(
      deterministicBytes(3 * Self.grain + 1000, seed: seed), index: 0,
      number: WriteNumber(session: Self.session, counter: 10))
    for index: UInt64 in [4, 5] {
      try file.storeRun(
        deterministicBytes(70, seed: seed &+ index), index: index,
        number: WriteNumber(session: Self.session, counter: 10 + index))
    }
    return file
  }

  /// Reads every grain: those in `attacked` must throw, the others must give the contents.
  private func expectNoticed(
    _ file: StoredFile, at attacked: Set<UInt64>,
    as error: (UInt64) -> SegmentError = SegmentError.notAuthentic,
    _ what: @autoclosure () -> String, backends: [CipherBackend] = CipherBackend.allCases
  ) throws {
    for backend in backends {
      let reading = try Reading(file, backend)
      for grain in 0..<SegmentLayout.segmentCount(file.size) {
        do {
          let read = try reading.read(at: grain * UInt64(Self.grain), count: Self.grain)
          guard !attacked.contains(grain) else { throw Mismatch("\(what()): grain \(grain) was released") }
          guard same(read, file.contents(of: grain)) else {
            throw Mismatch("\(what()): grain \(grain) differs")
          }
        } catch let found as SegmentError {
          guard attacked.contains(grain), found == error(grain) else {
            throw Mismatch("\(what()): grain \(grain) gave \(found)")
          }
        }
      }
    }
  }

  @Test func readsWhatNobodyTouched() throws { try expectNoticed(file(), at: [], "nothing") }

  @Test(arguments: CipherBackend.allCases)
  func noticesEveryFlippedBitOfAShortSegment(backend: CipherBackend) throws {
    let file = try file()
    let run = try file.segment(4)
    let cipher = SegmentCipher(backend)
    var stored = file.storedBytes(run)
    var output = [UInt8](repeating: 0xC3, count: 70)
    func open() throws { try cipher.open(stored, of: run.run, key: file.key, into: &output) }
    for bit in 0..<stored.count * 8 {
      stored[bit / 8] ^= 1 << UInt8(bit % 8)
      #expect(throws: SegmentError.notAuthentic(grain: 4), "bit \(bit)") { try open() }
      stored[bit / 8] ^= 1 << UInt8(bit % 8)
    }
    #expect(output == [UInt8](repeating: 0xC3, count: 70))
    try open()
    #expect(output == Array(file.contents(of: 4)[0..<70]))
  }

  @Test func readerNoticesEveryChangedByteOfAShortSegment() throws {
    let file = try file()
    let segment = try file.segment(4)
    let reading = try Reading(file)
    for byte in 0..<segment.storedByteCount {
      let place = Int(segment.offset) + byte
      file.slabs[0]![place] ^= 1 << UInt8(byte % 8)
      defer { file.slabs[0]![place] ^= 1 << UInt8(byte % 8) }
      #expect(throws: SegmentError.notAuthentic(grain: 4), "byte \(byte)") {
        try reading.read(at: 4 * UInt64(Self.grain), count: 70)
      }
    }
  }

  @Test(arguments: CipherBackend.allCases)
  func noticesFlippedBitsOfALongSegment(backend: CipherBackend) throws {
    let file = try file()
    var random = SplitMix64(seed: SplitMix64.testSeed)
    let reading = try Reading(file, backend)
    let frame = Array(0..<25) + Array(Self.stored - 17..<Self.stored)
    for byte in frame + [25, 25 + 63, 25 + 64] + (0..<60).map({ _ in random.below(Self.stored) }) {
      let place = Self.stored + byte
      let mask: UInt8 = 1 << UInt8(random.below(8))
      file.slabs[0]![place] ^= mask
      defer { file.slabs[0]![place] ^= mask }
      #expect(throws: SegmentError.notAuthentic(grain: 1), "byte \(byte), mask \(mask)") {
        try reading.read(at: UInt64(Self.grain), count: Self.grain)
      }
    }
    #expect(try same(reading.read(at: UInt64(Self.grain), count: Self.grain), file.contents(of: 1)))
  }

  @Test func noticesSlabCutBetweenSegments() throws {
    let file = try file()
    file.slabs[0]!.removeLast(111)
    try expectNoticed(file, at: [5], as: SegmentError.missingBytes, "the last segment cut off")
    file.slabs[0]!.removeLast(111 + 1041)
    try expectNoticed(file, at: [3, 4, 5], as: SegmentError.missingBytes, "three segments cut off")
    file.slabs = [:]
    try expectNoticed(file, at: [0, 1, 2, 3, 4, 5], as: SegmentError.missingBytes, "no slab")
  }

  @Test func noticesZeros() throws {
    for grain: UInt64 in 0..<6 {
      let file = try file()
      try file.overwrite(grain, with: [UInt8](repeating: 0, count: file.segment(grain).storedByteCount))
      try expectNoticed(file, at: [grain], "zeros")
    }
    let file = try file()
    file.slabs[0] = [UInt8](repeating: 0, count: file.slabs[0]!.count)
    try expectNoticed(file, at: [0, 1, 2, 3, 4, 5], "a slab of zeros")
  }

  @Test func noticesSwappedAndRepeatedSegments() throws {
    for (a, b) in [(0, 1), (0, 2), (4, 5)] as [(UInt64, UInt64)] {
      let file = try file()
      let (first, second) = (file.storedBytes(try file.segment(a)), file.storedBytes(try file.segment(b)))
      try file.overwrite(a, with: second)
      try expectNoticed(file, at: [a], "\(b) also at \(a)")
      try file.overwrite(b, with: first)
      try expectNoticed(file, at: [a, b], "\(a) and \(b) swapped")
    }
  }

  @Test func noticesRunThatSlippedByOneByte() throws {
    let file = try file()
    file.slabs[0]!.insert(0, at: 0)
    try expectNoticed(file, at: [0, 1, 2, 3, 4, 5], "a byte inserted")
  }

  /// The same grain, sealed with the same file key except for another file, but for another place.
  @Test(arguments: ["another file", "another session", "another counter", "another index"])
  func noticesSegmentFrom(place: String) throws {
    for grain: UInt64 in [1, 4] {
      let file = try file()
      let segment = try file.segment(grain)
      var key = file.key
      var number = segment.writeNumber
      var index = grain
      switch place {
      // A file is its key: container id and file id are inputs of that alone.
      case "another file": key[31] ^= 1
      case "another session": number.session = .random()
      case "another counter": number.counter += 1
      default: index += 1
      }
      let plaintext = Array(file.contents(of: grain)[0..<segment.plaintextByteCount])
      func splice() throws {
        try file.overwrite(grain, with: sealed(plaintext, key: key, number: number, index: index))
      }
      try splice()
      try expectNoticed(file, at: [grain], "a segment from \(place)")
      // The control: with nothing different, the same bytes are accepted.
      (key, number, index) = (file.key, segment.writeNumber, grain)
      try splice()
      try expectNoticed(file, at: [], "a segment sealed for its place")
    }
  }

  @Test func noticesSplicesBetweenTwoFilesOfAContainer() throws {
    // The same session, counters and lengths; the second file has the same contents, too.
    let one = try file()
    for seed: UInt64 in [8, 7] {
      let source = try file(seed: seed)
      for grain: UInt64 in 0..<6 {
        let target = try file(key: one.key)
        try target.overwrite(grain, with: source.storedBytes(source.segment(grain)))
        try expectNoticed(target, at: [grain], "grain \(grain) of another file")
      }
      source.slabs = one.slabs
      try expectNoticed(source, at: [0, 1, 2, 3, 4, 5], "the whole slab of another file")
    }
  }

  @Test func noticesOldVersionPutBack() throws {
    let file = try file()
    let old = file.storedBytes(try file.segment(4))
    let index = try #require(file.extents.firstIndex { $0.start == 4 })
    for number in [
      WriteNumber(session: Self.session, counter: 99), WriteNumber(session: .random(), counter: 14),
    ] {
      // The catalog names the new write number; the place may well be the old one.
      file.extents[index].writeNumber = number
      let plaintext = Array(file.contents(of: 4)[0..<70])
      try file.overwrite(4, with: sealed(plaintext, key: file.key, number: number, index: 4))
      try expectNoticed(file, at: [], "the new version")
      try file.overwrite(4, with: old)
      try expectNoticed(file, at: [4], "the old version")
    }
  }

  /// The catalog is authentic, but a wrong one must not give wrong bytes either.
  @Test func noticesExtentThatLiesAboutItsSegment() throws {
    func lie(at grain: UInt64, _ change: (inout Extent) -> Void) throws {
      let file = try file()
      let index = try #require(file.extents.firstIndex { $0.start == grain })
      change(&file.extents[index])
      try expectNoticed(file, at: [grain], "a lie about grain \(grain)")
    }
    try lie(at: 4) { $0.lastLength -= 1 }
    try lie(at: 4) { $0.lastLength += 1 }
    try lie(at: 4) { $0.offset += 1 }
    try lie(at: 4) { $0.writeNumber.counter += 1 }
    try lie(at: 5) { $0.writeNumber.session = .zero }
  }

  @Test func noticesSegmentsOfImpossibleLength() throws {
    let file = try file()
    let cipher = SegmentCipher()
    var output = [UInt8](repeating: 0xC3, count: 20_000)
    for length: UInt32 in [0, 16384 + 1, 20_000] {
      let run = SegmentRun(
        start: 4, count: 1, lastLength: length,
        writeNumber: WriteNumber(session: Self.session, counter: 14))
      #expect(throws: SegmentError.notAuthentic(grain: 4)) {
        let stored = [UInt8](repeating: 0, count: run.storedByteCount)
        try cipher.open(stored, of: run, key: file.key, into: &output)
      }
      for count in [0, 1, 24, 40] {
        #expect(throws: SegmentError.missingBytes(grain: 4)) {
          try cipher.open([UInt8](repeating: 0, count: count), of: run, key: file.key, into: &output)
        }
      }
    }
    #expect(output == [UInt8](repeating: 0xC3, count: 20_000))
  }
}
