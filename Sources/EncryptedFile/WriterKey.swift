import SodiumPrimitives

/// The key from which those of the segments of one file and one session are derived. Shared by the
/// threads that seal and open them.
final class WriterKey: Sendable {
  let session: Identifier
  private let secret: SecretKey
  private static let writerKeyLabel = label("OD1-writer-key")

  /// `KB(32, F, L("OD1-writer-key") ‖ session)`.
  init(_ session: Identifier, of fileKey: borrowing SecretKey) throws(CryptoError) {
    self.session = session
    secret = try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 16) { data throws(CryptoError) in
      data.copyBytes(from: Self.writerKeyLabel)
      session.store(to: data, at: 16)
      return try fileKey.derive(UnsafeRawBufferPointer(data))
    }
  }

  var pool: KeyPool { secret.pool }

  /// Lends `body` the key of one segment, `HChaCha20(W, counter ‖ index)`, inside of the gate of the keys, and wipes it afterwards. Throws `gone`
  /// when the keys were wiped.
  @inline(__always)
  func withSegmentKey<R, E: Error>(
    of segment: SegmentRun, else gone: @autoclosure () -> E, _ body: (RawSpan) throws(E) -> R
  ) throws(E) -> R {
    try withUnsafeTemporaryAllocation(byteCount: 48, alignment: 16) { memory throws(E) in
      let input = UnsafeMutableRawBufferPointer(rebasing: memory[32..<48])
      input.storeBytes(of: segment.writeNumber.counter.littleEndian, as: UInt64.self)
      input.storeBytes(of: segment.start.littleEndian, toByteOffset: 8, as: UInt64.self)
      let key = UnsafeMutableRawBufferPointer(rebasing: memory[0..<32])
      return try secret.withUnsafeBytes(else: gone()) { secret throws(E) in
        defer { wipe(key) }
        KeyedHash.hchacha20(key: secret, input: UnsafeRawBufferPointer(input), into: key)
        return try body(UnsafeRawBufferPointer(key).bytes)
      }
    }
  }
}
