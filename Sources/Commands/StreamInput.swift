/// A stream in pieces of at most 1 MiB, with progress and cancellation.
final class StreamInput {
  private static let pieceByteCount = 1 << 20

  private let descriptor: Int32
  private let name: String
  private let bar: ProgressBar?
  private let begin = ContinuousClock.now
  private var byteCount: UInt64 = 0

  init(descriptor: Int32, name: String, bar: ProgressBar?) {
    self.descriptor = descriptor
    self.name = name
    self.bar = bar
  }

  func next() throws -> [UInt8]? {
    let piece = try [UInt8](unsafeUninitializedCapacity: Self.pieceByteCount) { buffer, initialized in
      let memory = UnsafeMutableRawBufferPointer(buffer)
      while initialized < memory.count {
        let rest = UnsafeMutableRawBufferPointer(rebasing: memory[initialized...])
        let count = try readSome(descriptor, into: rest, name: name)
        if count == 0 { break }
        initialized += count
      }
    }
    byteCount += UInt64(piece.count)
    bar?.show(ProgressState(bytesDone: byteCount, byteCount: nil, seconds: begin.secondsSince))
    return piece.isEmpty ? nil : piece
  }
}
