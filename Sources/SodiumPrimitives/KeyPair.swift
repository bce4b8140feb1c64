import CSodium

/// A key pair of X25519 (RFC 7748, `crypto_scalarmult`): 32 bytes each. The private key is in
/// guarded memory.
public final class KeyPair: Sendable {
  public static let byteCount = 32

  public let publicKey: [UInt8]
  private let privateKey: SecretKey

  /// A pair from random bytes. Throws ``CryptoError/secretMemoryExhausted(byteCount:)``.
  public convenience init(in pool: KeyPool = .shared) throws(CryptoError) {
    try self.init(SecretKey.random(in: pool))
  }

  /// The pair of a private key, which may be any 32 bytes, and which is the caller's to wipe. Throws
  /// ``CryptoError/secretMemoryExhausted(byteCount:)``.
  public convenience init(
    copying privateKey: some Collection<UInt8>, in pool: KeyPool = .shared
  ) throws(CryptoError) {
    precondition(privateKey.count == Self.byteCount, "a private key has 32 bytes")
    try self.init(SecretKey(in: pool) { $0.copyBytes(from: privateKey) })
  }

  private init(_ privateKey: consuming SecretKey) throws(CryptoError) {
    requireSodium()
    self.publicKey = try privateKey.withUnsafeBytes { privateKey in
      [UInt8](unsafeUninitializedCapacity: Self.byteCount) { buffer, initialized in
        crypto_scalarmult_base(buffer.baseAddress!, privateKey.bytePointer)
        wipeStack(4096)
        initialized = Self.byteCount
      }
    }
    self.privateKey = privateKey
  }

  /// Throws ``CryptoError/keysWiped`` after ``KeyPool/shut()``.
  public func withPrivateKey<R>(
    _ body: (UnsafeRawBufferPointer) throws(CryptoError) -> R
  ) throws(CryptoError) -> R {
    try privateKey.withUnsafeBytes(body)
  }

  /// Lends `body` the secret that this pair and that of `publicKey` (32 bytes) have in common.
  /// Throws ``CryptoError/notAuthentic`` for a public key that gives the same secret with every
  /// private key.
  public func withSharedSecret<R>(
    with publicKey: RawSpan, _ body: (UnsafeRawBufferPointer) throws(CryptoError) -> R
  ) throws(CryptoError) -> R {
    precondition(publicKey.byteCount == Self.byteCount, "a public key has 32 bytes")
    return try withUnsafeTemporaryAllocation(byteCount: Self.byteCount, alignment: 16) {
      secret throws(CryptoError) in
      defer { wipe(secret) }
      let status = try privateKey.withUnsafeBytes { privateKey in
        publicKey.withUnsafeBytes {
          crypto_scalarmult(secret.bytePointer, privateKey.bytePointer, $0.bytePointer)
        }
      }
      wipeStack(4096)
      guard status == 0 else { throw .notAuthentic }
      return try body(UnsafeRawBufferPointer(secret))
    }
  }
}
