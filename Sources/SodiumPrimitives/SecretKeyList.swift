import CSodium
import Locks

/// Up to 256 keys of 32 bytes, one behind the other, in guarded memory; wiped when they go.
///
/// The memory of some that have gone is kept for the next ones: to make guarded memory and give it back takes
/// libsodium ten system calls, some of which hold up the other threads of the process.
public struct SecretKeyList: ~Copyable, @unchecked Sendable {
  // Invariant for Sendable: written only in the initialiser, before anybody else can see the memory.
  /// Nil without keys.
  private let memory: UnsafeMutableRawPointer?
  private let byteCount: Int

  public static let keyCountMax = 256
  static let byteCountMax = keyCountMax * SecretKey.byteCount

  /// Copies the keys. Throws ``CryptoError/secretMemoryExhausted(byteCount:)``.
  public init(copying keys: UnsafeRawBufferPointer) throws(CryptoError) {
    precondition(
      keys.count % SecretKey.byteCount == 0 && keys.count <= Self.byteCountMax,
      "whole keys, and no more than there is room for")
    byteCount = keys.count
    guard let source = keys.baseAddress, !keys.isEmpty else {
      memory = nil
      return
    }
    let memory = try KeptMemory.shared.take()
    memory.copyMemory(from: source, byteCount: keys.count)
    self.memory = memory
  }

  deinit {
    if let memory { KeptMemory.shared.giveBack(memory) }
  }

  @inline(__always)
  public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try body(UnsafeRawBufferPointer(start: memory, count: byteCount))
  }
}

/// Guarded memory for lists of keys, of which some is kept when it is free.
private final class KeptMemory: Sendable {
  static let shared = KeptMemory()
  /// More than there are frames at work on most machines. What is kept counts against `ulimit -l`: 12 KiB each.
  static let countMax = 16

  private struct State: @unchecked Sendable {  // invariant: reached only under the mutex
    var free: [UnsafeMutableRawPointer] = []
  }
  private let state = Guarded(State())

  func take() throws(CryptoError) -> UnsafeMutableRawPointer {
    requireSodium()
    if let memory = state.withLock({ $0.free.popLast() }) { return memory }
    guard let memory = sodium_malloc(SecretKeyList.byteCountMax) else {
      throw .secretMemoryExhausted(byteCount: SecretKeyList.byteCountMax)
    }
    return memory
  }

  func giveBack(_ memory: UnsafeMutableRawPointer) {
    sodium_memzero(memory, SecretKeyList.byteCountMax)
    let isKept = state.withLock { state in
      guard state.free.count < Self.countMax else { return false }
      state.free.append(memory)
      return true
    }
    if !isKept { sodium_free(memory) }
  }
}
