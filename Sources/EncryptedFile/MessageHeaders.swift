import SodiumPrimitives

/// Headers for the messages of one batch. They repeat only if random bytes *and* two clocks repeat
/// (FILE-FORMAT.md, "The header").
struct MessageHeaders: ~Copyable {
  /// Bytes of the key stream for each header, of which the first 24 are used.
  private static let stride = 32
  private static let seedLabel = label("OD1-header-seed")

  private let memory: UnsafeMutableRawBufferPointer

  /// `place` names the first message of the batch and no other message under this key; its first 80
  /// bytes are used.
  init(_ count: Int, key: RawSpan, place: RawSpan) {
    memory = .allocate(byteCount: count * Self.stride, alignment: 64)
    Self.fill(memory, key: key, place: place)
  }

  deinit { memory.deallocate() }

  /// The header of one message of the batch; valid as long as the batch.
  subscript(_ number: Int) -> UnsafeRawBufferPointer {
    let begin = number * Self.stride
    return UnsafeRawBufferPointer(
      rebasing: UnsafeRawBufferPointer(memory)[begin..<(begin + SecretStreamCipher.headerByteCount)])
  }

  /// The header of a message that is a batch of its own.
  static func withOne(key: RawSpan, place: RawSpan, _ body: (RawSpan) -> Void) {
    withUnsafeTemporaryAllocation(byteCount: stride, alignment: 8) { memory in
      fill(memory, key: key, place: place)
      body(UnsafeRawBufferPointer(memory).bytes.extracting(first: SecretStreamCipher.headerByteCount))
    }
  }

  private static func fill(_ output: UnsafeMutableRawBufferPointer, key: RawSpan, place: RawSpan) {
    withUnsafeTemporaryAllocation(byteCount: 144 + 32, alignment: 16) { memory in
      let input = UnsafeMutableRawBufferPointer(rebasing: memory[0..<144])
      let seed = UnsafeMutableRawBufferPointer(rebasing: memory[144...])
      input.initializeMemory(as: UInt8.self, repeating: 0)
      input.copyBytes(from: seedLabel)
      Random.fill(UnsafeMutableRawBufferPointer(rebasing: input[16..<48]))
      input.storeBytes(of: Clock.wallNanoseconds(), toByteOffset: 48, as: Int64.self)
      input.storeBytes(of: Clock.monotonicNanoseconds(), toByteOffset: 56, as: Int64.self)
      place.extracting(first: 80).withUnsafeBytes {
        UnsafeMutableRawBufferPointer(rebasing: input[64...]).copyMemory(from: $0)
      }
      key.withUnsafeBytes { KeyedHash.compute(key: $0, data: UnsafeRawBufferPointer(input), into: seed) }
      KeyedHash.keyStream(key: UnsafeRawBufferPointer(seed), into: output)
      wipe(memory)
    }
  }
}
