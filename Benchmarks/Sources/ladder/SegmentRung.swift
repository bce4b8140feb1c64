import ContainerStore
import EncryptedFile
import SodiumPrimitives

/// The file format without files: segments of 16 KiB sealed, opened and resealed from memory to memory.
struct SegmentRung {
  let bench: Bench

  func measure() throws {
    for threads in Set([1, processorCount()]).sorted() {
      let work = try SegmentWork(bench: bench, threads: threads)
      defer { work.workers.stop() }
      bench.add(
        try alternating([work.sealing, work.opening, work.resealing], repetitions: bench.repetitions))
    }
  }
}

/// 64 units of 1 MiB, more than the caches hold, put through by one thread or all of them.
private final class SegmentWork {
  private static let unitCount = 64
  private static let unitByteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
  private static let storedByteCount = SegmentLayout.storedByteCount(unitByteCount)

  let workers: WorkerThreads
  private let name: String
  private let byteCount: Int
  private let rounds: Int
  private let ours = Identifier.random()
  private let theirs = Identifier.random()
  private let session = Identifier.random()
  private let plaintext = Buffer(byteCount: unitCount * unitByteCount)
  private let sealed = Buffer(byteCount: unitCount * storedByteCount)
  private let resealed = Buffer(byteCount: unitCount * storedByteCount)

  init(bench: Bench, threads: Int) throws {
    workers = WorkerThreads(count: threads)
    let all = Self.unitCount * Self.unitByteCount
    byteCount = bench.byteCountInMemory(block: all)
    rounds = byteCount / all
    name = threads == 1 ? "1 thread" : "\(threads) threads"
    plaintext.fillIncompressibly()
    resealed.fillIncompressibly()  // touched once, so that no case pays for its pages
    _ = try seal()
  }

  var sealing: Case { Case("seal, \(name)", byteCount: byteCount) { [self] in try seal() } }
  var opening: Case { Case("open, \(name)", byteCount: byteCount) { [self] in try open() } }
  var resealing: Case {
    Case("open and seal again, \(name)", byteCount: byteCount) { [self] in try reseal() }
  }

  private func seal() throws -> Double {
    let (file, session) = (ours, session)
    return try forEachUnit(from: plaintext, to: sealed) { cipher, unit, input, output in
      let key = try FileKey(benchKey(of: file))
      cipher.seal(
        input, key: key, writerKey: try key.writerKey(session: session),
        index: Self.firstGrain(unit), counter: Self.firstGrain(unit) + 1, into: output)
    }
  }

  private func open() throws -> Double {
    let (file, session) = (ours, session)
    return try forEachUnit(from: sealed, to: plaintext) { cipher, unit, input, output in
      let key = try FileKey(benchKey(of: file))
      try cipher.open(
        run: Self.run(unit, session), stored: input, key: try key.writerKey(session: session),
        into: output)
    }
  }

  private func reseal() throws -> Double {
    let (file, target, session) = (ours, theirs, session)
    return try forEachUnit(from: sealed, to: resealed) { cipher, unit, input, output in
      let key = try FileKey(benchKey(of: file))
      let targetKey = try FileKey(benchKey(of: target))
      try cipher.reseal(
        run: Self.run(unit, session), stored: input, key: try key.writerKey(session: session),
        to: SegmentCipher.Target(counter: Self.firstGrain(unit) + 1, checkInterval: 64),
        targetKey: targetKey, targetWriterKey: try targetKey.writerKey(session: session), into: output)
    }
  }

  /// Lets the threads put every unit through `body`, `rounds` times.
  private func forEachUnit(
    from source: Buffer, to destination: Buffer,
    _ body:
      @escaping @Sendable (
        SegmentCipher, Int, UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer
      ) throws -> Void
  ) throws -> Double {
    // Safe: each unit is the business of one thread at a time, and the buffers outlive the call.
    nonisolated(unsafe) let input = UnsafeRawBufferPointer(source.bytes)
    nonisolated(unsafe) let output = destination.bytes
    let inputCount = input.count / Self.unitCount
    let outputCount = output.count / Self.unitCount
    return try seconds {
      for _ in 0..<rounds {
        try workers.forEach(Self.unitCount) { context, unit in
          try body(
            context.cipher, unit,
            UnsafeRawBufferPointer(rebasing: input[(unit * inputCount)..<((unit + 1) * inputCount)]),
            UnsafeMutableRawBufferPointer(
              rebasing: output[(unit * outputCount)..<((unit + 1) * outputCount)]))
        }
      }
    }
  }

  private static func firstGrain(_ unit: Int) -> UInt64 { UInt64(unit * SegmentLayout.segmentsPerUnit) }

  private static func run(_ unit: Int, _ session: Identifier) -> Extent {
    Extent(
      start: firstGrain(unit), count: UInt32(SegmentLayout.segmentsPerUnit),
      lastLength: UInt32(SegmentLayout.plaintextByteCountMax),
      writeNumber: WriteNumber(session: session, counter: firstGrain(unit) + 1), slab: 0, offset: 0)
  }
}

/// A key that follows from the file, made anew for each unit as the container does.
private func benchKey(of file: Identifier) throws -> SecretKey {
  try SecretKey { key in
    file.bytes.withUnsafeBytes { KeyedHash.compute(key: $0, data: $0, into: key) }
  }
}
