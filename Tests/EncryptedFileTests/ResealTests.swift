import SodiumPrimitives
import Testing

@testable import EncryptedFile

/// Importing, exporting and sending: every segment is opened and sealed for another file.
struct ResealTests {
  static let grain = SegmentLayout.plaintextByteCountMax
  static let stored = SegmentLayout.storedByteCountMax
  static let targetNumber = WriteNumber(session: .random(), counter: 1_000)

  private func source(_ byteCount: Int, index: UInt64 = 0) throws -> StoredFile {
    let file = StoredFile()
    try file.storeRun(
      deterministicBytes(byteCount, seed: UInt64(byteCount)), index: index,
      number: WriteNumber(session: .random(), counter: 5))
    return file
  }

  /// The target's runs, one for each of the source's, in its slab 0.
  private func reseal(
    _ source: StoredFile, backend: CipherBackend, checkInterval: Int = 1
  ) throws -> StoredFile {
    let target = StoredFile()
    (target.size, target.contents) = (source.size, source.contents)
    let cipher = SegmentCipher(backend)
    let targetKey = try FileKey(bytes: target.key)
    let sourceKey = try FileKey(bytes: source.key)
    for run in source.extents {
      let stored = source.storedBytes(run)
      var output = [UInt8](repeating: 0xC3, count: run.storedByteCount)
      var targetRun = run.run
      targetRun.writeNumber = Self.targetNumber
      var batch = try SegmentBatch(Int(run.count), from: targetRun, key: targetKey, by: cipher)
      try output.withUnsafeMutableBytes { memory in
        var output = OutputRawSpan(buffer: memory, initializedCount: 0)
        try batch.reseal(
          stored.span.bytes, of: run.run, key: sourceKey, checkInterval: checkInterval, into: &output)
      }
      var extent = run
      (extent.writeNumber, extent.slab, extent.offset) = (Self.targetNumber, 0, 0)
      target.extents.append(extent)
      target.slabs[0] = output
    }
    return target
  }

  @Test(arguments: [1, 70, grain, grain + 1, 64 * grain, 100 * grain + 333], CipherBackend.allCases)
  func resealedRunOpensAsTheOtherFile(byteCount: Int, backend: CipherBackend) throws {
    for (index, checkInterval) in [(0, 1), (7, 3), (9, 0)] as [(UInt64, Int)] {
      let source = try source(byteCount, index: index)
      let target = try reseal(source, backend: backend, checkInterval: checkInterval)
      #expect(target.slabs[0]!.count == source.slabs[0]!.count)
      #expect(try same(Reading(target, backend).readInOrder(pieces: 1 << 20).released, source.contents))
      // Nothing of the old file is in it.
      let stray = StoredFile(key: source.key)
      (stray.size, stray.extents, stray.slabs) = (source.size, source.extents, target.slabs)
      #expect(throws: SegmentError.notAuthentic(grain: index)) {
        try Reading(stray, backend).read(at: index * UInt64(Self.grain), count: 1)
      }
      #expect(!same(Array(target.slabs[0]![0..<24]), Array(source.slabs[0]![0..<24])))
    }
  }

  @Test(arguments: CipherBackend.allCases)
  func headersOfAResealedRunDiffer(backend: CipherBackend) throws {
    let target = try reseal(source(100 * Self.grain), backend: backend)
    let headers = (0..<100).map { Array(target.slabs[0]![$0 * Self.stored..<$0 * Self.stored + 24]) }
    #expect(Set(headers).count == 100)
  }

  @Test(arguments: [0, 3, 9], CipherBackend.allCases)
  func namesTheGrainWhereTheSourceIsDamaged(damaged: Int, backend: CipherBackend) throws {
    for byte in [0, 24, 25, 8000, Self.stored - 1] {
      let source = try source(10 * Self.grain, index: 20)
      source.slabs[0]![damaged * Self.stored + byte] ^= 4
      #expect(throws: SegmentError.notAuthentic(grain: UInt64(20 + damaged))) {
        try reseal(source, backend: backend)
      }
    }
  }

  @Test func namesTheGrainWhereTheSourceEnds() throws {
    let source = try source(10 * Self.grain, index: 20)
    source.slabs[0]!.removeLast(2 * Self.stored + 1)
    #expect(throws: SegmentError.missingBytes(grain: 27)) { try reseal(source, backend: .preferred) }
  }

  @Test(arguments: [1, 70, 1000, grain], CipherBackend.allCases)
  func checkNoticesWhatWasSealedWrongly(byteCount: Int, backend: CipherBackend) throws {
    let key = Random.bytes(32)
    let plaintext = deterministicBytes(byteCount, seed: 1)
    let cipher = SegmentCipher(backend)
    let good = try sealed(plaintext, key: key, number: Self.targetNumber, index: 3, by: cipher)

    func check(_ sealed: [UInt8], _ plaintext: [UInt8], index: UInt64 = 3, counter: UInt64 = 1_000) throws {
      let segment = segment(index, byteCount, counter)
      let writerKey = try FileKey(bytes: key).writerKey(Self.targetNumber.session)
      try cipher.checkSegment(sealed.span.bytes, as: segment, opensTo: plaintext.span.bytes, key: writerKey)
    }
    try check(good, plaintext)
    for byte in [0, byteCount / 2, byteCount - 1] {
      var other = plaintext
      other[byte] ^= 0x80
      #expect(throws: SegmentError.sealedWrongly(grain: 3)) { try check(good, other) }
    }
    #expect(throws: SegmentError.sealedWrongly(grain: 3)) { try check(good, plaintext + [0]) }
    #expect(throws: SegmentError.sealedWrongly(grain: 3)) { try check(good, Array(plaintext.dropLast())) }
    #expect(throws: SegmentError.sealedWrongly(grain: 4)) { try check(good, plaintext, index: 4) }
    #expect(throws: SegmentError.sealedWrongly(grain: 3)) { try check(good, plaintext, counter: 1_001) }
    var damaged = good
    damaged[good.count - 1] ^= 1
    #expect(throws: SegmentError.sealedWrongly(grain: 3)) { try check(damaged, plaintext) }
    try check(good, plaintext)
  }

  /// In reseal, the plaintext to compare with stands in the very memory that opening overwrites.
  @Test(arguments: CipherBackend.allCases)
  func checkComparesWithPlaintextThatStandsInTheCipher(backend: CipherBackend) throws {
    let key = Random.bytes(32)
    let cipher = SegmentCipher(backend)
    let one = try sealed(
      deterministicBytes(1000, seed: 1), key: key, number: Self.targetNumber, index: 0)
    let other = try sealed(
      deterministicBytes(1000, seed: 2), key: key, number: Self.targetNumber, index: 0)
    let writerKey = try FileKey(bytes: key).writerKey(Self.targetNumber.session)
    let segment = segment(0, 1000, 1_000)
    let plaintext = try cipher.openSegment(0, of: segment, in: one.span.bytes, key: writerKey)
    #expect(throws: SegmentError.sealedWrongly(grain: 0)) {
      try cipher.checkSegment(other.span.bytes, as: segment, opensTo: plaintext.bytes, key: writerKey)
    }
  }

  private func segment(_ index: UInt64, _ byteCount: Int, _ counter: UInt64) -> SegmentRun {
    SegmentRun(
      start: index, plaintextByteCount: byteCount,
      writeNumber: WriteNumber(session: Self.targetNumber.session, counter: counter))
  }
}
