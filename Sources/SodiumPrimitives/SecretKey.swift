import CSodium
import Synchronization

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

/// Guarded allocations of 512 keys each, at most 1024 of them (16 MiB of keys).
private final class SecretKeyPool: Sendable {
  static let shared = SecretKeyPool()
  static let keysPerAllocation = 512
  static let allocationCountMax = 1024

  private struct State: @unchecked Sendable {  // invariant: reached only under the mutex
    var free: [UnsafeMutableRawPointer] = []
    var allocationCount = 0
  }
  private let state = Mutex(State())

  func take() throws(CryptoError) -> UnsafeMutableRawBufferPointer {
    requireSodium()
    let slot = state.withLock { state -> UnsafeMutableRawBufferPointer? in
      if state.free.isEmpty {
        let byteCount = Self.keysPerAllocation * SecretKey.byteCount
        guard state.allocationCount < Self.allocationCountMax, let base = sodium_malloc(byteCount) else {
          return nil
        }
        state.allocationCount += 1
        state.free = (0..<Self.keysPerAllocation).map { base + $0 * SecretKey.byteCount }
      }
      return UnsafeMutableRawBufferPointer(start: state.free.removeLast(), count: SecretKey.byteCount)
    }
    guard let slot else { throw .secretMemoryExhausted(byteCount: SecretKey.byteCount) }
    return slot
  }

  func giveBack(_ slot: UnsafeMutableRawBufferPointer) {
    sodium_memzero(slot.baseAddress, slot.count)
    state.withLock { $0.free.append(slot.baseAddress!) }  // a slot from `take` has an address
  }
}
