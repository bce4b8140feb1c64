import CSodium
import Locks

/// Guarded allocations of 512 keys each, at most 1024 of them (16 MiB of keys).
final class SecretKeyPool: Sendable {
  static let shared = SecretKeyPool()
  static let keysPerAllocation = 512
  static let allocationCountMax = 1024

  private struct State: @unchecked Sendable {  // invariant: reached only under the mutex
    var free: [UnsafeMutableRawPointer] = []
    var allocationCount = 0
  }
  private let state = Guarded(State())

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
