import ContainerStore
import EncryptedFile
import Foundation
import SodiumPrimitives

/// The file format without files: segments of 16 KiB sealed, opened and resealed from memory to memory.
struct SegmentRung {
  let bench: Bench

  func measure() throws {
    for threads in Set([1, processorCount()]).sorted() {
      let work = try SegmentWork(byteCount: bench.size / 4, threads: threads)
      defer { work.workers.stop() }
      bench.add(
        try alternating([work.sealing, work.opening, work.resealing], repetitions: bench.repetitions))
    }
  }
}

/// Units of stored segments, put through by one thread or all of them.
final class SegmentWork {
  private static let storedByteCount = SegmentLayout.storedByteCount(UnitRounds.unitByteCount)

  let workers: WorkerThreads
  private let units: UnitRounds
  private let name: String
  private let ours = Identifier.random()
  private let theirs = Identifier.random()
  private let session = Identifier.random()
  private let plaintext = Buffer(byteCount: UnitRounds.unitCount * UnitRounds.unitByteCount)
  private let sealed = Buffer(byteCount: UnitRounds.unitCount * storedByteCount)
  private let resealed = Buffer(byteCount: UnitRounds.unitCount * storedByteCount)

  init(byteCount: Int, threads: Int) throws {
    workers = WorkerThreads(count: threads)
    units = UnitRounds(byteCount: byteCount)
    name = threads == 1 ? "1 thread" : "\(threads) threads"
    plaintext.fillIncompressibly()
    resealed.fillIncompressibly()  // touched once, so that no case pays for its pages
    _ = try seal()
  }

  var sealing: Case { Case("seal, \(name)", byteCount: units.byteCount) { [self] in try seal() } }
  var opening: Case { Case("open, \(name)", byteCount: units.byteCount) { [self] in try open() } }
  var resealing: Case {
    Case("open and seal again, \(name)", byteCount: units.byteCount) { [self] in try reseal() }
  }

  private func seal() throws -> Double {
    let (file, session) = (ours, session)
    return try units.seconds(on: workers, from: plaintext, to: sealed) { context, unit, input, output in
      var output = OutputRawSpan(buffer: output, initializedCount: 0)
      let run = Self.run(unit, session)
      var batch = try SegmentBatch(run, key: try FileKey(benchKey(of: file)), by: context.cipher)
      try batch.seal(input.bytes, as: run, into: &output)
    }
  }

  private func open() throws -> Double {
    let (file, session) = (ours, session)
    return try units.seconds(on: workers, from: sealed, to: plaintext) { context, unit, input, output in
      var output = OutputRawSpan(buffer: output, initializedCount: 0)
      try context.cipher.open(
        input.bytes, of: Self.run(unit, session), key: try FileKey(benchKey(of: file)), into: &output)
    }
  }

  private func reseal() throws -> Double {
    let (file, target, session) = (ours, theirs, session)
    return try units.seconds(on: workers, from: sealed, to: resealed) { context, unit, input, output in
      try Self.reseal(context.cipher, unit, from: file, to: target, session, stored: input, into: output)
    }
  }

  private static func reseal(
    _ cipher: SegmentCipher, _ unit: Int, from file: Identifier, to target: Identifier, _ session: Identifier,
    stored: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws {
    let run = run(unit, session)
    var batch = try SegmentBatch(
      Int(run.count), from: run, key: try FileKey(benchKey(of: target)), by: cipher)
    var output = OutputRawSpan(buffer: output, initializedCount: 0)
    try batch.reseal(
      stored.bytes, of: run, key: try FileKey(benchKey(of: file)), checkInterval: 64, into: &output)
  }

  /// The stored units as the contents of a new file.
  func writeStored(to name: String, in directory: String) throws {
    let file = try PosixBlockIO(directory).open(name, .createNew)
    for round in 0..<units.rounds {
      try file.write(UnsafeRawBufferPointer(sealed.bytes), at: UInt64(round * sealed.bytes.count))
    }
  }

  /// The same from file to new file: a unit is read, opened, sealed and written by one thread.
  func resealFile(from source: String, to target: String, in directory: String) throws -> Double {
    let (file, other, session) = (ours, theirs, session)
    let io = PosixBlockIO(directory)
    let (input, output) = (try io.open(source, .read), try io.open(target, .createNew))
    return try seconds {
      try workers.forEach(units.rounds * UnitRounds.unitCount) { context, index in
        let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[..<Self.storedByteCount])
        let resealed = UnsafeMutableRawBufferPointer(rebasing: context.output[..<Self.storedByteCount])
        let offset = UInt64(index * Self.storedByteCount)
        let count = try input.read(into: stored, at: offset)
        precondition(count == stored.count, "the file has all units")
        try Self.reseal(
          context.cipher, index % UnitRounds.unitCount, from: file, to: other, session,
          stored: UnsafeRawBufferPointer(stored), into: resealed)
        try output.write(UnsafeRawBufferPointer(resealed), at: offset)
      }
    }
  }

  private static func firstGrain(_ unit: Int) -> UInt64 { UInt64(unit * SegmentLayout.segmentsPerUnit) }

  private static func run(_ unit: Int, _ session: Identifier) -> SegmentRun {
    SegmentRun(
      start: firstGrain(unit), plaintextByteCount: UnitRounds.unitByteCount,
      writeNumber: WriteNumber(session: session, counter: firstGrain(unit) + 1))
  }
}

/// A key that follows from the file, made anew for each unit as the container does.
private func benchKey(of file: Identifier) throws -> SecretKey {
  try SecretKey { key in
    file.bytes.withUnsafeBytes { KeyedHash.compute(key: $0, data: $0, into: key) }
  }
}
