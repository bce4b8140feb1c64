/// A 32-byte key in the process's pool of guarded memory; wiped when it goes.
///
/// Cheaper than ``SecretBytes`` (no system call), for keys that come one per file or session.
public struct SecretKey: ~Copyable, @unchecked Sendable {
  public static let byteCount = 32

  // Invariant for Sendable: written only in initialisers, before anybody else can see the slot.
  private let slot: UnsafeMutableRawBufferPointer

  /// The key that `fill` writes. Throws ``CryptoError/secretMemoryExhausted(byteCount:)``.
  public init(_ fill: (UnsafeMutableRawBufferPointer) -> Void) throws(CryptoError) {
    slot = try SecretKeyPool.shared.take()
    fill(slot)
  }

  public init(copying bytes: UnsafeRawBufferPointer) throws(CryptoError) {
    precondition(bytes.count == Self.byteCount, "a key has 32 bytes")
    try self.init { $0.copyMemory(from: bytes) }
  }

  public static func random() throws(CryptoError) -> SecretKey {
    try SecretKey { Random.fill($0) }
  }

  /// `KB(32, key, data)` of the format pages: keyed BLAKE2b.
  public static func derived(
    from key: UnsafeRawBufferPointer, _ data: UnsafeRawBufferPointer
  ) throws(CryptoError) -> SecretKey {
    try SecretKey { KeyedHash.compute(key: key, data: data, into: $0) }
  }

  deinit { SecretKeyPool.shared.giveBack(slot) }

  @inline(__always)
  public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try body(UnsafeRawBufferPointer(slot))
  }
}
