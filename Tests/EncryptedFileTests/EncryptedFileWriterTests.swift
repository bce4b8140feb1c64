import EncryptedFile
import SodiumPrimitives
import Testing

struct EncryptedFileWriterTests {
  static let grain = SegmentLayout.plaintextByteCountMax
  static let unit = SegmentLayout.segmentsPerUnit * grain

  private struct Full: Error {}

  private func writing(_ backend: CipherBackend = .preferred) throws -> Writing {
    try Writing(key: Random.bytes(32), session: .random(), backend: backend)
  }

  @Test(arguments: [
    0, 1, grain - 1, grain, grain + 1, unit - 1, unit, unit + 1, 2 * unit + 12_345,
  ])
  func readerGetsBackWhatWasWritten(byteCount: Int) throws {
    for backend in CipherBackend.allCases {
      let file = try StoredFile(byteCount: byteCount, backend: backend)
      #expect(file.size == UInt64(byteCount))
      for readBackend in CipherBackend.allCases {
        let (released, failure) = try Reading(file, readBackend).readInOrder(pieces: Self.unit)
        #expect(failure == nil)
        #expect(same(released, file.contents), "sealed by \(backend), read by \(readBackend)")
      }
    }
  }

  @Test func oddPiecesGiveTheSameExtentsAsOneAppend() throws {
    let contents = deterministicBytes(3 * Self.unit + 777, seed: 5)
    let whole = try writing()
    try whole.append(contents)
    try whole.finish()
    #expect(whole.extents.map(\.count) == [64, 64, 64, 1])
    #expect(whole.extents.map(\.lastLength) == [16384, 16384, 16384, 777])
    #expect(whole.extents.map(\.start) == [0, 64, 128, 192])

    for lengths in [
      [1, 7, 100_000], [Self.unit - 1, 2], [Self.unit + 1], [2 * Self.unit + 5, 0, 3], [Self.unit],
    ] {
      let pieces = StoredFile()
      let writing = try Writing(key: pieces.key, session: .random())
      var position = 0
      var turn = 0
      while position < contents.count {
        let end = min(position + lengths[turn % lengths.count], contents.count)
        try writing.append(Array(contents[position..<end]))
        position = end
        turn += 1
      }
      try writing.finish()
      func shape(_ extent: Extent) -> [UInt64] {
        [
          extent.start, UInt64(extent.count), UInt64(extent.lastLength), extent.writeNumber.counter,
          extent.offset,
        ]
      }
      #expect(writing.size == whole.size)
      #expect(writing.extents.map(shape) == whole.extents.map(shape), "in pieces of \(lengths)")
      (pieces.size, pieces.extents, pieces.slabs[0]) = (writing.size, writing.extents, writing.slab)
      #expect(try same(Reading(pieces).read(at: 0, count: contents.count), contents))
    }
  }

  @Test func emptyFileStoresNothingAndTakesNoCounters() throws {
    let writing = try writing()
    try writing.append([])
    try writing.finish()
    #expect(writing.size == 0 && writing.extents.isEmpty)
    #expect(writing.storedByteCounts.isEmpty && writing.reservations.isEmpty)
  }

  @Test func finishingAgainStoresNothingMore() throws {
    let writing = try writing()
    try writing.append([1, 2, 3])
    try writing.finish()
    try writing.finish()
    #expect(writing.storedByteCounts == [44] && writing.size == 3)
  }

  @Test func storesEachUnitAsItFills() throws {
    let writing = try writing()
    try writing.append([UInt8](repeating: 1, count: Self.unit - 1))
    #expect(writing.storedByteCounts.isEmpty)
    try writing.append([2, 3])
    #expect(writing.storedByteCounts == [1_051_200])
    #expect(writing.size == UInt64(Self.unit))
    try writing.finish()
    #expect(writing.storedByteCounts == [1_051_200, 42])
  }

  @Test func countersAreReservedOncePerSegment() throws {
    let writing = try writing()
    try writing.append(deterministicBytes(2 * Self.unit + 3 * Self.grain + 1, seed: 1))
    try writing.finish()
    let used = writing.extents.flatMap { extent in
      (0..<UInt64(extent.count)).map { extent.writeNumber.counter + $0 }
    }
    #expect(Set(used).count == used.count)
    #expect(used == Array(1...132))
    #expect(writing.reservations.map(\.count) == [64, 64, 4])
  }

  @Test func runsAreSealedForTheSessionOfTheirNumbers() throws {
    let file = StoredFile()
    let sessions = [Identifier.random(), .random()]
    let contents = deterministicBytes(3 * Self.unit + 5, seed: 9)
    let writing = try Writing(key: file.key, session: sessions[0])
    try writing.append(Array(contents[0..<Self.unit]))
    writing.begin(session: sessions[1])
    try writing.append(Array(contents[Self.unit...]))
    try writing.finish()
    let numbers = writing.extents.map(\.writeNumber)
    #expect(numbers.map(\.session) == [sessions[0], sessions[1], sessions[1], sessions[1]])
    #expect(numbers.map(\.counter) == [1, 1, 65, 129])
    (file.size, file.extents, file.slabs[0]) = (writing.size, writing.extents, writing.slab)
    #expect(try same(Reading(file).read(at: 0, count: contents.count), contents))
  }

  @Test func sameContentsNeverGiveTheSameBytes() throws {
    // Even where, against the rules, a counter is used twice: the headers differ.
    let number = WriteNumber(session: .random(), counter: 1)
    let key = Random.bytes(32)
    let contents = [UInt8](repeating: 0, count: 3 * Self.grain)
    let runs = try (0..<20).map { _ in
      try sealed(contents, key: key, number: number, index: 0)
    }
    let headers = runs.flatMap { run in
      (0..<3).map {
        Array(run[$0 * SegmentLayout.storedByteCountMax..<$0 * SegmentLayout.storedByteCountMax + 24])
      }
    }
    #expect(Set(headers).count == 60)
  }

  @Test(arguments: [1, unit, 2 * unit + 5])
  func passesOnWhatTheStoreThrowsAndCountsNothing(byteCount: Int) throws {
    let writing = try writing()
    writing.storeFailure = Full()
    #expect(throws: Full.self) {
      try writing.append([UInt8](repeating: 9, count: byteCount))
      try writing.finish()
    }
    #expect(writing.size == 0 && writing.extents.isEmpty)
    #expect(!writing.reservations.isEmpty, "the counters of a write that failed are gone")
  }

  @Test func appendingAfterTheEndEndsTheProcess() async {
    await #expect(processExitsWith: .failure) {
      let writing = try Writing(key: Random.bytes(32), session: .zero)
      try writing.append([1])
      try writing.finish()
      try writing.append([2])
      try writing.finish()
    }
  }

  /// What failed to be stored is missing; carrying on would put later bytes in its place.
  @Test func writesNothingMoreAfterTheStoreFailed() throws {
    let writing = try writing()
    try writing.append([UInt8](repeating: 1, count: Self.unit))
    writing.storeFailure = Full()
    #expect(throws: Full.self) { try writing.append([UInt8](repeating: 2, count: Self.unit)) }
    writing.storeFailure = nil
    #expect(throws: Full.self) { try writing.append([UInt8](repeating: 3, count: Self.unit)) }
    #expect(throws: Full.self) { try writing.finish() }
    #expect(writing.size == UInt64(Self.unit) && writing.extents.count == 1)
  }
}
