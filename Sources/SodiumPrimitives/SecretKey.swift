/// A 32-byte key in the guarded memory of a ``KeyPool``; wiped when it goes, and when the pool is shut.
///
/// Cheaper than ``SecretBytes`` (no system call), for keys that come one per file or session.
public struct SecretKey: ~Copyable, @unchecked Sendable {
  public static let byteCount = 32

  // Invariant for Sendable: written only in initialisers, before anybody else can see the slot.
  @usableFromInline let slot: UnsafeMutableRawBufferPointer
  public let pool: KeyPool

  /// The key that `fill` writes. Throws ``CryptoError/secretMemoryExhausted(byteCount:)`` and ``CryptoError/keysWiped``.
  public init(
    in pool: KeyPool = .shared, _ fill: (UnsafeMutableRawBufferPointer) -> Void
  ) throws(CryptoError) {
    try self.init(in: pool, else: { $0 }, fill: { slot throws(CryptoError) in fill(slot) })
  }

  /// The same for a computation that may fail. It is inside of the gate, for which the memory was taken before. `failure` makes an error
  /// of what the pool says.
  public init<E: Error>(
    in pool: KeyPool, else failure: (CryptoError) -> E,
    fill: (UnsafeMutableRawBufferPointer) throws(E) -> Void
  ) throws(E) {
    let slot: UnsafeMutableRawBufferPointer
    do throws(CryptoError) { slot = try pool.take() } catch { throw failure(error) }
    // A place in a pool that was shut since cannot be written.
    do throws(E) {
      try pool.inside(else: failure(.keysWiped)) { () throws(E) in try fill(slot) }
    } catch {
      pool.giveBack(slot)
      throw error
    }
    self.slot = slot
    self.pool = pool
  }

  public init(copying bytes: UnsafeRawBufferPointer, in pool: KeyPool = .shared) throws(CryptoError) {
    precondition(bytes.count == Self.byteCount, "a key has 32 bytes")
    try self.init(in: pool) { $0.copyMemory(from: bytes) }
  }

  public static func random(in pool: KeyPool = .shared) throws(CryptoError) -> SecretKey {
    try SecretKey(in: pool) { Random.fill($0) }
  }

  /// `KB(32, key, data)` of the format pages, keyed BLAKE2b, in the same pool. Throws ``CryptoError/keysWiped``.
  public borrowing func derive(_ data: UnsafeRawBufferPointer) throws(CryptoError) -> SecretKey {
    // The place of both keys is inside of the same gate then.
    try SecretKey(in: pool) { KeyedHash.compute(key: UnsafeRawBufferPointer(slot), data: data, into: $0) }
  }

  /// The same for bytes in an array.
  public borrowing func derive(_ data: [UInt8]) throws(CryptoError) -> SecretKey {
    try data.span.withUnsafeBytes { data throws(CryptoError) in try derive(data) }
  }

  deinit { pool.giveBack(slot) }

  /// Lends `body` the key, inside of the pool's gate: for a computation alone. Throws ``CryptoError/keysWiped`` after ``KeyPool/shut()``.
  @inlinable @inline(__always)
  public borrowing func withUnsafeBytes<R: ~Copyable>(
    _ body: (UnsafeRawBufferPointer) throws(CryptoError) -> R
  ) throws(CryptoError) -> R {
    try withUnsafeBytes(else: .keysWiped, body)
  }

  /// The same with an error for a key that is gone.
  @inlinable @inline(__always)
  public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
    else gone: @autoclosure () -> E, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try pool.inside(else: gone()) { () throws(E) in try body(UnsafeRawBufferPointer(slot)) }
  }
}
