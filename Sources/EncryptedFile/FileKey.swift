public import SodiumPrimitives

/// The key of one file's contents.
public struct FileKey: ~Copyable, Sendable {
  private let secret: SecretKey

  public init(_ secret: consuming SecretKey) { self.secret = secret }

  /// The key for what one session wrote to the file: `KB(32, F, L("OD1-writer-key") ‖ session)`.
  public borrowing func writerKey(session: Identifier) throws(CryptoError) -> WriterKey {
    let data = label("OD1-writer-key") + session.bytes
    let derived = try secret.withUnsafeBytes { key throws(CryptoError) in
      try SecretKey { output in
        data.withUnsafeBytes { KeyedHash.compute(key: key, data: $0, into: output) }
      }
    }
    return WriterKey(secret: derived, session: session)
  }

  borrowing func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
    secret.withUnsafeBytes(body)
  }
}

/// From which the keys of single segments come; see ``FileKey/writerKey(session:)``.
public struct WriterKey: ~Copyable, Sendable {
  fileprivate let secret: SecretKey
  public let session: Identifier

  /// `HChaCha20(W, counter ‖ index)`, valid inside the closure and wiped after it.
  @inline(__always)
  borrowing func withSegmentKey<R, E: Error>(
    counter: UInt64, index: UInt64, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try withUnsafeTemporaryAllocation(byteCount: 48, alignment: 16) { memory throws(E) in
      let input = UnsafeMutableRawBufferPointer(rebasing: memory[32..<48])
      input.storeBytes(of: counter.littleEndian, as: UInt64.self)
      input.storeBytes(of: index.littleEndian, toByteOffset: 8, as: UInt64.self)
      let key = UnsafeMutableRawBufferPointer(rebasing: memory[0..<32])
      defer { wipe(key) }
      secret.withUnsafeBytes {
        KeyedHash.hchacha20(key: $0, input: UnsafeRawBufferPointer(input), into: key)
      }
      return try body(UnsafeRawBufferPointer(key))
    }
  }
}
