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

/// 64 units of 1 MiB, more than the caches hold, put through by one thread or all of them.
final class SegmentWork {
  private static let unitCount = 64
  private static let unitByteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
  private static let storedByteCount = SegmentLayout.storedByteCount(unitByteCount)

  let workers: WorkerThreads
  private let byteCount: Int
  private let name: String
  private let rounds: Int
  private let ours = Identifier.random()
  private let theirs = Identifier.random()
  private let session = Identifier.random()
  private let plaintext = Buffer(byteCount: unitCount * unitByteCount)
  private let sealed = Buffer(byteCount: unitCount * storedByteCount)
  private let resealed = Buffer(byteCount: unitCount * storedByteCount)

  /// Puts `byteCount` bytes of contents through in each repetition, in whole rounds of all units.
  init(byteCount: Int, threads: Int) throws {
    workers = WorkerThreads(count: threads)
    let all = Self.unitCount * Self.unitByteCount
    rounds = max(1, byteCount / all)
    self.byteCount = rounds * all
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
      try Self.reseal(cipher, unit, from: file, to: target, session, stored: input, into: output)
    }
  }

  private static func reseal(
    _ cipher: SegmentCipher, _ unit: Int, from file: Identifier, to target: Identifier, _ session: Identifier,
    stored: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws {
    let key = try FileKey(benchKey(of: file))
    let targetKey = try FileKey(benchKey(of: target))
    try cipher.reseal(
      run: run(unit, session), stored: stored, key: try key.writerKey(session: session),
      to: SegmentCipher.Target(counter: firstGrain(unit) + 1, checkInterval: 64),
      targetKey: targetKey, targetWriterKey: try targetKey.writerKey(session: session), into: output)
  }

  /// The stored units as the contents of a file.
  func writeStored(to path: String) throws {
    let file = try NativeFile(path, O_WRONLY | O_CREAT | O_TRUNC)
    for round in 0..<rounds {
      try file.write(UnsafeRawBufferPointer(sealed.bytes), at: round * sealed.bytes.count)
    }
  }

  /// The same from file to file: a unit is read, opened, sealed and written by one thread.
  func resealFile(from source: String, to target: String) throws -> Double {
    let (file, other, session) = (ours, theirs, session)
    let input = try NativeFile(source, O_RDONLY)
    let output = try NativeFile(target, O_WRONLY | O_CREAT | O_TRUNC)
    return try seconds {
      try workers.forEach(rounds * Self.unitCount) { context, index in
        let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[..<Self.storedByteCount])
        let resealed = UnsafeMutableRawBufferPointer(rebasing: context.output[..<Self.storedByteCount])
        try input.read(into: stored, at: index * Self.storedByteCount)
        try Self.reseal(
          context.cipher, index % Self.unitCount, from: file, to: other, session,
          stored: UnsafeRawBufferPointer(stored), into: resealed)
        try output.write(UnsafeRawBufferPointer(resealed), at: index * Self.storedByteCount)
      }
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

/// A file descriptor that is closed with its owner.
private final class NativeFile: Sendable {
  private let descriptor: Int32
  private let path: String

  init(_ path: String, _ flags: Int32) throws {
    self.path = path
    descriptor = open(path, flags, 0o600)
    guard descriptor >= 0 else { throw NativeError(path: path, code: errno) }
  }

  deinit { close(descriptor) }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws {
    var done = 0
    while done < buffer.count {
      let count = pread(descriptor, buffer.baseAddress! + done, buffer.count - done, off_t(offset + done))
      guard count > 0 else { throw NativeError(path: path, code: count < 0 ? errno : EIO) }
      done += count
    }
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
    var done = 0
    while done < bytes.count {
      let count = pwrite(descriptor, bytes.baseAddress! + done, bytes.count - done, off_t(offset + done))
      guard count > 0 else { throw NativeError(path: path, code: errno) }
      done += count
    }
  }
}

struct NativeError: Error, CustomStringConvertible {
  let path: String
  let code: Int32

  var description: String { "\(path): \(String(cString: strerror(code)))" }
}
