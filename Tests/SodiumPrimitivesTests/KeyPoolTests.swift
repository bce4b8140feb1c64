import Foundation
import TestSupport
import Testing

@testable import SodiumPrimitives

/// Keys that go together, while they are referenced.
struct KeyPoolTests {
  private final class Holder: Sendable {
    let key: SecretKey

    init(in pool: KeyPool) throws { key = try SecretKey.random(in: pool) }
  }

  private struct Other: Error {}

  @Test func nothingGoesThroughAShutGate() async throws {
    let pool = KeyPool()
    let holder = try Holder(in: pool)
    let derived = try holder.key.derive([1, 2, 3])
    #expect(derived.pool === pool && !pool.isShut)
    let pair = try KeyPair(in: pool)
    pool.shut()
    pool.shut()
    #expect(pool.isShut)
    #expect(throws: CryptoError.keysWiped) { try holder.key.withUnsafeBytes { _ in } }
    #expect(throws: CryptoError.keysWiped) { _ = try holder.key.derive([1]) }
    #expect(throws: CryptoError.keysWiped) { _ = try SecretKey.random(in: pool) }
    #expect(throws: CryptoError.keysWiped) { try pair.withPrivateKey { _ in } }
    let publicKey = pair.publicKey
    #expect(throws: CryptoError.keysWiped) {
      let key = publicKey
      try pair.withSharedSecret(with: key.span.bytes) { _ in }
    }
    #expect(throws: Other.self) {
      try holder.key.withUnsafeBytes(else: Other()) { _ throws(Other) in }
    }
    // The process's own keys are always there.
    try Holder(in: .shared).key.withUnsafeBytes { _ in }
    await #expect(processExitsWith: .failure) { KeyPool.shared.shut() }
  }

  /// Threads are inside all the time: each sees the whole key or none.
  @Test func waitsForThoseInside() throws {
    for _ in 0..<200 {
      let pool = KeyPool()
      let holder = try Holder(in: pool)
      let expected = try holder.key.withUnsafeBytes { Array($0) }
      let ended = DispatchGroup()
      for _ in 0..<4 {
        ended.enter()
        Thread.detachNewThread {
          defer { ended.leave() }
          do {
            while true {
              let same = try holder.key.withUnsafeBytes { $0.elementsEqual(expected) }
              #expect(same)
              if !same { return }
            }
          } catch {
            #expect(error as? CryptoError == .keysWiped)
          }
        }
      }
      pool.shut()
      ended.wait()
    }
  }

  @Test func aThreadThatStaysInsideEndsTheProcess() async {
    await #expect(processExitsWith: .failure) {
      let pool = KeyPool()
      let holder = try Holder(in: pool)
      let isInside = DispatchSemaphore(value: 0)
      Thread.detachNewThread {
        try? holder.key.withUnsafeBytes { _ in
          isInside.signal()
          sleep(60)
        }
      }
      isInside.wait()
      pool.shut()
    }
  }

  #if os(Linux)
    /// Keys and what the cipher has of the last one are found in memory before, and not after.
    @Test(.enabled(if: MemorySearch.isPossible), arguments: CipherBackend.allCases)
    func nothingIsLeftInMemory(backend: CipherBackend) throws {
      let pool = KeyPool()
      let cipher = SecretStreamCipher(backend, in: pool)
      let holder = try Holder(in: pool)
      let search = MemorySearch(count: SecretKey.byteCount) { _ in }
      try holder.key.withUnsafeBytes {
        UnsafeMutableRawBufferPointer(mutating: search.bytes).copyMemory(from: $0)
      }
      // The key of a message is derived from that of the stream and its header.
      let header = [UInt8](repeating: 3, count: SecretStreamCipher.headerByteCount)
      let message = [UInt8](repeating: 4, count: 4096)
      let messageKey = try MemorySearch(count: 32) { output in
        try holder.key.withUnsafeBytes { key in
          header.prefix(16).withUnsafeBytes { KeyedHash.hchacha20(key: key, input: $0, into: output) }
        }
      }
      var sealed = [UInt8]()
      try holder.key.withUnsafeBytes { key in
        sealed = [UInt8](unsafeUninitializedCapacity: message.count + SecretStreamCipher.overheadByteCount) {
          buffer, count in
          var output = OutputRawSpan(buffer: UnsafeMutableRawBufferPointer(buffer), initializedCount: 0)
          cipher.seal(
            message.span.bytes, key: key.bytes, header: header.span.bytes, ad: [UInt8]().span.bytes,
            into: &output)
          count = output.byteCount
        }
      }
      for _ in 0..<2 {
        _ = try holder.key.withUnsafeBytes { key throws(CryptoError) in
          try cipher.open(sealed.span.bytes, key: key.bytes, ad: [UInt8]().span.bytes)
        }
      }
      #expect(search.places().count == 1)
      // libcrypto keeps it in both directions.
      if cipher.backend == .libcrypto { #expect(messageKey.places().count >= 2) }
      pool.shut()
      #expect(search.places() == [] && messageKey.places() == [])
      withExtendedLifetime((cipher, holder)) {}
    }
  #endif
}
