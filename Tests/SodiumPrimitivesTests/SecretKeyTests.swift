import CSodium
import Foundation
import SodiumPrimitives
import Testing

struct SecretKeyTests {
  /// An array needs something that can be copied.
  private final class Holder: Sendable {
    let key: SecretKey

    init(_ bytes: [UInt8]) throws {
      key = try bytes.span.withUnsafeBytes { bytes throws(CryptoError) in
        try SecretKey(copying: bytes)
      }
    }

    var contents: [UInt8] { get throws { try key.withUnsafeBytes { [UInt8]($0) } } }
  }

  @Test func holdsWhatWasCopiedIn() throws {
    let bytes = Random.bytes(SecretKey.byteCount)
    #expect(try Holder(bytes).contents == bytes)
  }

  @Test func holdsWhatTheClosureWrote() throws {
    let key = try SecretKey { slot in
      #expect(slot.count == 32)
      for i in 0..<32 { slot[i] = UInt8(i) }
    }
    #expect(try key.withUnsafeBytes { [UInt8]($0) } == Array(0..<32))
  }

  @Test func randomDiffersEachTime() throws {
    let first = try SecretKey.random()
    let second = try SecretKey.random()
    let one = try first.withUnsafeBytes { [UInt8]($0) }
    #expect(try one != second.withUnsafeBytes { [UInt8]($0) })
  }

  @Test func derivesByKeyedHash() throws {
    let parent = Random.bytes(32)
    let data = Random.bytes(100)
    var expected = [UInt8](repeating: 0, count: 32)
    #expect(crypto_generichash(&expected, 32, data, 100, parent, 32) == 0)
    let derived = try Holder(parent).key.derive(data)
    #expect(try derived.withUnsafeBytes { [UInt8]($0) } == expected)
  }

  @Test func twentyThousandKeysLiveAtOnce() throws {
    func bytes(_ number: Int) -> [UInt8] {
      var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 32)
      withUnsafeBytes(of: number.littleEndian) { bytes.replaceSubrange(0..<8, with: $0) }
      return bytes
    }
    var holders = try (0..<20_000).map { try Holder(bytes($0)) }
    #expect(try holders.indices.allSatisfy { try holders[$0].contents == bytes($0) })
    // Every other slot changes hands; the keys that stay must not notice.
    for number in stride(from: 0, to: holders.count, by: 2) { holders[number] = try Holder(bytes(-number)) }
    #expect(
      try holders.indices.allSatisfy { try holders[$0].contents == bytes($0.isMultiple(of: 2) ? -$0 : $0) })
  }

  @Test func keysFromManyTasksDoNotShareSlots() async throws {
    try await withThrowingTaskGroup(of: Bool.self) { group in
      for task in 0..<8 {
        group.addTask {
          let bytes = [UInt8](repeating: UInt8(task + 1), count: 32)
          for _ in 0..<50 {
            let holders = try (0..<20).map { _ in try Holder(bytes) }
            guard try holders.allSatisfy({ try $0.contents == bytes }) else { return false }
          }
          return true
        }
      }
      for try await intact in group { #expect(intact) }
    }
  }

  @Test func wipesTheSlotOfAKeyThatGoes() throws {
    func addressOfAKeyThatWent() throws -> UnsafeRawPointer? {
      let key = try SecretKey { _ = memset($0.baseAddress!, 0xEE, 32) }
      return try key.withUnsafeBytes { $0.baseAddress }
    }
    // The pool never frees its memory, so the slot can still be read. Another test may own it by now, with other bytes.
    let slot = UnsafeRawBufferPointer(start: try addressOfAKeyThatWent(), count: 32)
    #expect(!slot.allSatisfy { $0 == 0xEE })
  }

  @Test func throwsWhenThePoolIsExhausted() async {
    await #expect(processExitsWith: .success) {
      // 1024 allocations of 512 keys. An own process: other tests' keys must not run out.
      let first = try SecretKey.random()
      for number in 2... {
        do {
          _ = Unmanaged.passRetained(try Leaked())
        } catch CryptoError.secretMemoryExhausted(byteCount: 32) {
          guard number > 1024 * 512 else { fatalError("exhausted at key \(number)") }
          break
        }
      }
      try first.withUnsafeBytes { _ in }
    }
  }

  private final class Leaked {
    let key: SecretKey
    init() throws { key = try SecretKey { $0[0] = 1 } }
  }

  @Test func endsTheProcessOnAKeyOfAnotherLength() async {
    await #expect(processExitsWith: .failure) {
      let bytes = [UInt8](repeating: 0, count: 31)
      _ = try Holder(bytes)
    }
  }
}
