import ContainerStore
import EncryptedFile
import Foundation
import SecureFiles
import SodiumPrimitives

/// The main job, one layer at a time: bytes are opened under one key and sealed under another, on all
/// threads. From the segments on, each line does what the line before it does, and more.
struct StepsRung {
  let bench: Bench

  private static let file = "/large"

  func measure() throws {
    let workspace = bench.workspace
    let threads = processorCount()
    let messages = CipherBackend.allCases.map { MessageWork($0, byteCount: bench.size, threads: threads) }
    let segments = try SegmentWork(byteCount: bench.size, threads: threads)
    defer {
      for work in messages { work.workers.stop() }
      segments.workers.stop()
    }
    try segments.writeStored(to: "stored", in: workspace.path)
    try workspace.makeIncompressibleFile("plain", byteCount: bench.size)
    let source = try workspace.makeContainer("source", .grouped)
    defer { try? source.close() }
    try source.importItem(at: workspace.place("plain"), to: Self.file)
    try source.synchronize()
    try workspace.remove("plain")

    var resealing = segments.resealing
    resealing.name = "segments, in memory"
    let cases =
      [messages[0].copying] + messages.map(\.resealing) + [
        resealing,
        Case("pipeline: segments, from file to file", byteCount: bench.size) {
          try workspace.prepare(source: "stored", byteCount: bench.size + bench.size / 8)
          defer { try? workspace.remove("resealed") }
          return try segments.resealFile(from: "stored", to: "resealed", in: workspace.path)
        },
        Case("container: Container.send", byteCount: bench.size) {
          try sendOnce { receiver in _ = try source.send([Self.file], to: receiver, sender: "ladder") }
        },
        Case("interface: SecureContainer.send", byteCount: bench.size) {
          let interface = SecureContainer(source)
          return try sendOnce { receiver in
            try waitFor {
              _ = try await interface.send([Self.file], to: SecureContainer(receiver), sender: "ladder")
            }
          }
        },
      ]
    let series = try alternating(cases, repetitions: bench.repetitions)
    bench.add(series)
    for (before, one) in zip(series, series.dropFirst()) {
      bench.add(Ratio("share of the line before: \(one.name)", subject: one, baseline: before))
    }
    try source.close()
    for name in ["stored", "source"] { try workspace.remove(name) }
  }

  /// Time of `body` with a new receiver that does not wait for the disk. Creating and closing the receiver
  /// are not part of it.
  private func sendOnce(_ body: (Container) throws -> Void) throws -> Double {
    let workspace = bench.workspace
    let receiver = try workspace.makeContainer("receiver", .none)
    try workspace.prepare(source: "source", byteCount: bench.size + bench.size / 8)
    let time = try seconds { try body(receiver) }
    try receiver.close()
    try workspace.remove("receiver")
    return time
  }

  /// Blocks the main thread, which runs no task, until `body` has ended.
  private func waitFor(_ body: @escaping @Sendable () async throws -> Void) throws {
    let ended = DispatchSemaphore(value: 0)
    // Safe: written before the signal, and read after it.
    nonisolated(unsafe) var result = Result<Void, any Error>.success(())
    Task {
      do { try await body() } catch { result = .failure(error) }
      ended.signal()
    }
    ended.wait()
    try result.get()
  }
}

/// Messages of 16 KiB in memory, opened and sealed again by a cipher alone: no keys of files and no indexes.
private final class MessageWork {
  private static let messageByteCount = SegmentLayout.plaintextByteCountMax
  private static let sealedByteCount = messageByteCount + SecretStreamCipher.messageOverheadByteCount
  private static let allByteCount = UnitRounds.unitCount * SegmentLayout.segmentsPerUnit * sealedByteCount

  let workers: WorkerThreads
  private let units: UnitRounds
  private let name: String
  private let keyAndHeader = Buffer(byteCount: SecretKey.byteCount + SecretStreamCipher.headerByteCount)
  private let sealed = Buffer(byteCount: allByteCount)
  private let resealed = Buffer(byteCount: allByteCount)

  init(_ backend: CipherBackend, byteCount: Int, threads: Int) {
    let cipher = SecretStreamCipher(backend)
    // Without libcrypto both are libsodium, and the table has to name it.
    name = cipher.backend.rawValue
    workers = WorkerThreads(count: threads, backend: cipher.backend)
    units = UnitRounds(byteCount: byteCount)
    keyAndHeader.fillIncompressibly()
    resealed.fillIncompressibly()
    let plaintext = Buffer(byteCount: Self.messageByteCount)
    plaintext.fillIncompressibly()
    for offset in stride(from: 0, to: sealed.bytes.count, by: Self.sealedByteCount) {
      var state = Self.state(UnsafeRawBufferPointer(keyAndHeader.bytes))
      var output = OutputRawSpan(
        buffer: sealed.bytes[offset..<(offset + Self.sealedByteCount)], initializedCount: 0)
      cipher.push(&state, plaintext.bytes.bytes, ad: RawSpan(), tag: .message, into: &output)
    }
  }

  var copying: Case {
    Case("memory copy", byteCount: units.byteCount) { [self] in
      try units.seconds(on: workers, from: sealed, to: resealed) { _, _, input, output in
        output.copyMemory(from: input)
      }
    }
  }

  var resealing: Case {
    Case("\(name): messages opened and sealed, in memory", byteCount: units.byteCount) { [self] in
      // Safe: it is only read, and outlives the call.
      nonisolated(unsafe) let keyAndHeader = UnsafeRawBufferPointer(self.keyAndHeader.bytes)
      return try units.seconds(on: workers, from: sealed, to: resealed) { context, _, input, output in
        let opened = UnsafeMutableRawBufferPointer(rebasing: context.input[..<Self.messageByteCount])
        for offset in stride(from: 0, to: input.count, by: Self.sealedByteCount) {
          let message = offset..<(offset + Self.sealedByteCount)
          var state = Self.state(keyAndHeader)
          let (plaintext, tag) = try context.cipher.stream.pull(
            &state, input.bytes.extracting(message), ad: RawSpan())
          precondition(tag == .message, "what was pushed is pulled")
          opened.copyMemory(from: plaintext)
          state = Self.state(keyAndHeader)
          var output = OutputRawSpan(buffer: output[message], initializedCount: 0)
          context.cipher.stream.push(
            &state, opened.bytes, ad: RawSpan(), tag: .message, into: &output)
        }
      }
    }
  }

  private static func state(_ keyAndHeader: UnsafeRawBufferPointer) -> SecretStreamState {
    SecretStreamState(
      key: keyAndHeader.bytes.extracting(first: SecretKey.byteCount),
      header: keyAndHeader.bytes.extracting(droppingFirst: SecretKey.byteCount))
  }
}
