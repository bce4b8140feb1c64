import EncryptedFile
import SodiumPrimitives
import TestSupport
import Testing

struct EncryptedFileReaderTests {
  static let grain = SegmentLayout.plaintextByteCountMax
  static let unit = SegmentLayout.segmentsPerUnit * grain

  // MARK: Random access

  @Test(arguments: CipherBackend.allCases, 0..<3)
  func randomReadsGiveWhatTheOracleHas(backend: CipherBackend, number: UInt64) throws {
    let seed = SplitMix64.testSeed &+ number
    let file = try Patchwork.make(seed: seed, grainCount: 150, slabCount: 3, backend: backend)
    let reading = try Reading(file, backend)
    var random = SplitMix64(seed: seed &+ 1000)
    for _ in 0..<40 {
      // Around the places where something begins or ends, or anywhere.
      let edge = [1, Self.grain, Self.unit][random.below(3)]
      let near = random.below(file.contents.count / edge + 2) * edge + random.below(5) - 2
      let offset = max(0, random.oneIn(3) ? random.below(file.contents.count) : near)
      let count =
        random.oneIn(8) ? random.below(2 * Self.unit + 9) : random.below(random.oneIn(2) ? 50 : 60_000)
      let read = try reading.read(at: UInt64(offset), count: count)
      let begin = min(offset, file.contents.count)
      let expected = Array(file.contents[begin..<min(begin + count, file.contents.count)])
      guard same(read, expected) else {
        throw Mismatch("seed \(seed): \(count) bytes at \(offset) of \(file.size) are not those written")
      }
    }
  }

  @Test func readsInOrderInPiecesOfAnyLength() throws {
    let file = try Patchwork.make(seed: SplitMix64.testSeed &+ 50, grainCount: 100, slabCount: 2)
    for pieces in [20_007, Self.unit - 1, Self.unit + 1, 5 * Self.unit] {
      let (released, failure) = try Reading(file).readInOrder(pieces: pieces)
      #expect(failure == nil)
      #expect(same(released, file.contents), "in pieces of \(pieces)")
    }
  }

  @Test func readsNothingAtAndAfterTheEnd() throws {
    let file = try StoredFile(byteCount: Self.grain + 10)
    let reading = try Reading(file)
    #expect(try reading.read(at: file.size - 1, count: 100) == [file.contents.last!])
    for offset in [file.size, file.size + 1, 1 << 62, UInt64.max] {
      #expect(try reading.read(at: offset, count: 100) == [])
    }
    #expect(try reading.read(at: 5, count: 0) == [])
    #expect(try Reading(StoredFile(byteCount: 0)).read(at: 0, count: 1) == [])
  }

  @Test func readsZerosWhereAFileIsOneHole() throws {
    let file = StoredFile()
    file.size = 1 << 61
    let reading = try Reading(file)
    #expect(try same(reading.read(at: (1 << 61) - 100, count: 200), [UInt8](repeating: 0, count: 100)))
  }

  @Test func fetchesOnlyTheSegmentsOfTheGrainsThatAreRead() throws {
    let file = try StoredFile(byteCount: 3 * Self.unit)
    var fetched: [Range<UInt64>] = []
    let reading = try Reading(file) { slab, offset, buffer in
      fetched.append(offset..<offset + UInt64(buffer.count))
      return file.storedBytes(slab, offset, buffer)
    }
    let stored = UInt64(SegmentLayout.storedByteCountMax)
    _ = try reading.read(at: UInt64(5 * Self.grain + 1), count: 1)
    #expect(fetched == [5 * stored..<6 * stored])
    fetched = []
    _ = try reading.read(at: UInt64(63 * Self.grain), count: 2 * Self.grain)
    #expect(fetched == [63 * stored..<64 * stored, 64 * stored..<65 * stored])
    fetched = []
    _ = try reading.read(at: 0, count: 3 * Self.unit)
    #expect(fetched.map(\.count) == [Int](repeating: 64 * Int(stored), count: 3))
  }

  // MARK: Damage

  @Test(arguments: CipherBackend.allCases)
  func readsAroundADamagedSegment(backend: CipherBackend) throws {
    let file = try StoredFile(byteCount: 3 * Self.unit + 12_345, backend: backend)
    let reading = try Reading(file, backend)
    let damaged = 100  // in the second unit
    let place = damaged * SegmentLayout.storedByteCountMax + 5000
    file.slabs[0]![place] ^= 0x10

    func expect(_ offset: Int, _ count: Int) throws {
      let read = try reading.read(at: UInt64(offset), count: count)
      #expect(same(read, Array(file.contents[offset..<offset + count])), "\(count) bytes at \(offset)")
    }
    func expectRefusal(_ offset: Int, _ count: Int) {
      #expect(throws: SegmentError.notAuthentic(grain: UInt64(damaged))) {
        try reading.read(at: UInt64(offset), count: count)
      }
    }
    try expect(0, Self.unit)
    try expect(Self.unit, (damaged - 64) * Self.grain)
    try expect((damaged + 1) * Self.grain, 2 * Self.unit - (damaged + 1) * Self.grain)
    try expect((damaged + 1) * Self.grain, Self.unit)

    // One byte of the grain, all of it, and the unit around it.
    expectRefusal(damaged * Self.grain, 1)
    expectRefusal((damaged + 1) * Self.grain - 1, 1)
    expectRefusal(damaged * Self.grain, Self.grain)
    expectRefusal(damaged * Self.grain - 1, 2)
    expectRefusal(Self.unit, Self.unit)

    // The units before it come, then it throws.
    let before = try reading.read(at: 1000, count: 3 * Self.unit)
    #expect(same(before, Array(file.contents[1000..<Self.unit])))
    expectRefusal(Self.unit, 2 * Self.unit)

    // The reader does not keep what it refused.
    file.slabs[0]![place] ^= 0x10
    try expect(0, 3 * Self.unit)
  }

  @Test func namesTheGrainWhereStoredBytesEnd() throws {
    let file = try StoredFile(byteCount: 10 * Self.grain)
    let stored = SegmentLayout.storedByteCountMax
    for (kept, grain) in [(0, 0), (stored - 1, 0), (stored, 1), (9 * stored, 9), (10 * stored - 1, 9)] {
      let cut = StoredFile(key: file.key)
      (cut.size, cut.extents) = (file.size, file.extents)
      cut.slabs[0] = Array(file.slabs[0]![0..<kept])
      let (released, failure) = try Reading(cut).readInOrder(pieces: Self.grain)
      #expect(failure as? SegmentError == .missingBytes(grain: UInt64(grain)), "\(kept) bytes kept")
      #expect(same(released, Array(file.contents[0..<grain * Self.grain])))
      #expect(throws: SegmentError.missingBytes(grain: UInt64(grain))) {
        try Reading(cut).read(at: 0, count: 10 * Self.grain)
      }
    }
  }

  @Test func passesOnWhatTheStoreThrows() throws {
    struct Unplugged: Error {}
    var isUnplugged = true
    let file = try StoredFile(byteCount: 2 * Self.unit)
    let reading = try Reading(file) { slab, offset, buffer in
      if isUnplugged, offset > 0 { throw Unplugged() }
      return file.storedBytes(slab, offset, buffer)
    }
    #expect(try reading.read(at: 0, count: 2 * Self.unit).count == Self.unit)
    #expect(throws: Unplugged.self) { try reading.read(at: UInt64(Self.unit), count: Self.unit) }
    isUnplugged = false
    #expect(try same(reading.read(at: 0, count: 2 * Self.unit), file.contents))
  }

  // MARK: Extents

  @Test func sortsExtentsByTheirStarts() throws {
    let extents = [run(5, 1), run(0, 3), run(3, 2)]
    #expect(
      try EncryptedFileReader.checked(extents, size: 100_000) == [run(0, 3), run(3, 2), run(5, 1)])
  }

  static let impossible: [(extents: [Extent], grain: UInt64)] = [
    ([run(0, 3), run(2, 1)], 2), ([run(2, 1), run(0, 3)], 2), ([run(0, 3), run(0, 3)], 0),
    ([run(0, 9), run(3, 1), run(20, 1)], 3), ([run(0, 1), run(1, 0)], 1),
  ]

  @Test(arguments: impossible)
  func refusesExtentsThatOverlapOrCannotBe(extents: [Extent], grain: UInt64) {
    #expect(throws: SegmentError.damagedExtent(grain: grain)) {
      try EncryptedFileReader.checked(extents, size: 1_000_000)
    }
  }

  @Test func refusesExtentThatReachesPastTheSize() throws {
    let end = UInt64(2 * Self.grain + 100)
    #expect(try EncryptedFileReader.checked([run(0, 3)], size: end).count == 1)
    #expect(throws: SegmentError.damagedExtent(grain: 0)) {
      try EncryptedFileReader.checked([run(0, 3)], size: end - 1)
    }
  }

  @Test func refusesFileLargerThanTheFormatAllows() throws {
    #expect(try EncryptedFileReader.checked([], size: (1 << 62) - 1).isEmpty)
    #expect(throws: SegmentError.damagedExtent(grain: 0)) {
      try EncryptedFileReader.checked([], size: 1 << 62)
    }
  }

  private static func run(_ start: UInt64, _ count: UInt32) -> Extent {
    Extent(
      start: start, count: count, lastLength: 100, writeNumber: WriteNumber(session: .zero, counter: 1),
      slab: 0, offset: 0)
  }
  private func run(_ start: UInt64, _ count: UInt32) -> Extent { Self.run(start, count) }
}
