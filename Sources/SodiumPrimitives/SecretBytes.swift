import CSodium

/// Secret bytes of any length in guarded memory (`sodium_malloc`): locked into RAM, between guard
/// pages, wiped when freed.
///
/// Not copyable, and reachable only inside a closure. A process can hold some 16,000 of these; keys
/// that come in numbers are ``SecretKey``s or in ``SecretKeyList``s.
public struct SecretBytes: ~Copyable, @unchecked Sendable {
  // Invariant for Sendable: the memory is written only in initialisers and through `mutating`
  // methods, which have exclusive access to the one owner.
  private let memory: UnsafeMutableRawBufferPointer

  /// Zeros. Throws ``CryptoError/secretMemoryExhausted(byteCount:)``.
  public init(count: Int) throws(CryptoError) {
    requireSodium()
    precondition(count >= 0, "a count of bytes is not negative")
    guard let base = sodium_malloc(max(count, 1)) else {
      throw .secretMemoryExhausted(byteCount: count)
    }
    sodium_memzero(base, count)
    memory = UnsafeMutableRawBufferPointer(start: base, count: count)
  }

  public init(copying bytes: UnsafeRawBufferPointer) throws(CryptoError) {
    try self.init(count: bytes.count)
    memory.copyMemory(from: bytes)
  }

  /// The UTF-8 bytes of a string, for a passphrase that exists as a string already. The string
  /// itself is not wiped.
  public init(utf8 string: String) throws(CryptoError) {
    var bytes = Array(string.utf8)
    try self.init(count: bytes.count)
    bytes.withUnsafeMutableBytes { source in
      memory.copyMemory(from: UnsafeRawBufferPointer(source))
      if let base = source.baseAddress { sodium_memzero(base, source.count) }
    }
  }

  public static func random(count: Int) throws(CryptoError) -> SecretBytes {
    let secret = try SecretBytes(count: count)
    Random.fill(secret.memory)
    return secret
  }

  deinit { sodium_free(memory.baseAddress) }

  public var count: Int { memory.count }

  @inline(__always)
  public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try body(UnsafeRawBufferPointer(memory))
  }

  @inline(__always)
  public mutating func withUnsafeMutableBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeMutableRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try body(memory)
  }

  public borrowing func copy() throws(CryptoError) -> SecretBytes {
    try SecretBytes(copying: UnsafeRawBufferPointer(memory))
  }
}
