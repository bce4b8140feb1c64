import EncryptedFile
import SodiumPrimitives
import Testing

struct SegmentBatchTests {
  static let session = Identifier.random()
  let key = Random.bytes(32)

  private static func run(_ grain: UInt64, _ byteCount: Int, counter: UInt64) -> SegmentRun {
    SegmentRun(
      start: grain, plaintextByteCount: byteCount,
      writeNumber: WriteNumber(session: session, counter: counter))
  }

  /// Open files store scattered grains together, and open the old segment of one between two others.
  @Test(arguments: CipherBackend.allCases)
  func sealsScatteredSegmentsWhileOthersAreOpened(backend: CipherBackend) throws {
    let cipher = SegmentCipher(backend)
    let grains: [(index: UInt64, byteCount: Int)] = [(7, 16384), (2, 1), (40, 333), (41, 16384)]
    let runs = grains.indices.map {
      Self.run(grains[$0].index, grains[$0].byteCount, counter: 10 + UInt64($0))
    }
    let old = Self.run(40, 333, counter: 1)
    let oldStored = try sealed(
      deterministicBytes(333, seed: 40), key: key, number: old.writeNumber, index: 40, by: cipher)
    var stored = [UInt8](repeating: 0, count: runs.reduce(0) { $0 + $1.storedByteCount })
    var batch = try SegmentBatch(runs.count, from: runs[0], key: FileKey(bytes: key), by: cipher)
    try stored.withUnsafeMutableBytes { memory in
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      for run in runs {
        var plaintext = deterministicBytes(run.plaintextByteCount, seed: run.start)
        if run.start == old.start {
          plaintext.withUnsafeMutableBytes { wipe($0) }
          try cipher.open(oldStored, of: old, key: key, into: &plaintext)
        }
        try batch.seal(plaintext.span.bytes, as: run, into: &output)
      }
    }
    var rest = stored[...]
    for run in runs {
      var plaintext = [UInt8](repeating: 0, count: run.plaintextByteCount)
      let segment = Array(rest.prefix(run.storedByteCount))
      rest = rest.dropFirst(segment.count)
      try cipher.open(segment, of: run, key: key, into: &plaintext)
      #expect(same(plaintext, deterministicBytes(run.plaintextByteCount, seed: run.start)))
    }
  }

  /// A file key keeps the keys of a few sessions; more of them than it keeps must not matter.
  @Test func opensRunsOfManySessionsUnderOneKey() throws {
    let cipher = SegmentCipher()
    let fileKey = try FileKey(bytes: key)
    let runs = (0..<40).map { _ in
      SegmentRun(
        start: 3, plaintextByteCount: 70, writeNumber: WriteNumber(session: .random(), counter: 1))
    }
    let plaintext = deterministicBytes(70, seed: 3)
    let stored = try runs.map {
      try sealed(plaintext, key: key, number: $0.writeNumber, index: 3, by: cipher)
    }
    for _ in 0..<2 {
      for (run, stored) in zip(runs, stored) {
        try cipher.check(stored.span.bytes, of: run, key: fileKey)
      }
      var plaintext = plaintext
      #expect(throws: SegmentError.notAuthentic(grain: 3)) {
        try cipher.open(stored[0], of: runs[1], key: key, into: &plaintext)
      }
    }
  }

  @Test(arguments: [9, 11] as [UInt64])
  func sealingUnderAnotherWriteNumberEndsTheProcess(counter: UInt64) async {
    await #expect(processExitsWith: .failure) { [counter] in
      var batch = try SegmentBatch(
        1, from: SegmentBatchTests.run(0, 1, counter: 10), key: FileKey(SecretKey.random()),
        by: SegmentCipher())
      let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 1)
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      try batch.seal([1].span.bytes, as: SegmentBatchTests.run(0, 1, counter: counter), into: &output)
    }
  }

  @Test func sealingMoreSegmentsThanTheBatchHasEndsTheProcess() async {
    await #expect(processExitsWith: .failure) {
      var batch = try SegmentBatch(
        1, from: SegmentBatchTests.run(0, 1, counter: 10), key: FileKey(SecretKey.random()),
        by: SegmentCipher())
      let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 1)
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      for counter in [10, 11] as [UInt64] {
        try batch.seal([1].span.bytes, as: SegmentBatchTests.run(0, 1, counter: counter), into: &output)
      }
    }
  }
}
