import Foundation
import SodiumPrimitives
import Testing

struct SecretKeyListTests {
  /// An array needs something that can be copied.
  private final class Holder: Sendable {
    let keys: SecretKeyList

    init(_ bytes: [UInt8]) throws {
      keys = try bytes.span.withUnsafeBytes { bytes throws(CryptoError) in
        try SecretKeyList(copying: bytes)
      }
    }

    var contents: [UInt8] { keys.withUnsafeBytes { [UInt8]($0) } }
  }

  @Test(arguments: [0, 1, 64, 255, 256])
  func holdsWhatWasCopiedIn(count: Int) throws {
    let bytes = Random.bytes(count * SecretKey.byteCount)
    #expect(try Holder(bytes).contents == bytes)
  }

  @Test func listsFromManyTasksDoNotShareMemory() async throws {
    try await withThrowingTaskGroup(of: Bool.self) { group in
      for task in 0..<8 {
        group.addTask {
          for round in 0..<50 {
            let lists = try (0..<5).map {
              let bytes = [UInt8](repeating: UInt8(task * 20 + $0), count: (round * 7 + $0) % 257 * 32)
              return (try Holder(bytes), bytes)
            }
            guard lists.allSatisfy({ $0.contents == $1 }) else { return false }
          }
          return true
        }
      }
      for try await intact in group { #expect(intact) }
    }
  }

  @Test func wipesAndKeepsTheMemoryOfAListThatGoes() async {
    // In a process of its own nobody else gets the memory, or has it freed.
    await #expect(processExitsWith: .success) {
      func addressOfAListThatWent() throws -> UnsafeRawPointer? {
        try Holder([UInt8](repeating: 0xEE, count: 8192)).keys.withUnsafeBytes { $0.baseAddress }
      }
      let address = try addressOfAListThatWent()
      guard UnsafeRawBufferPointer(start: address, count: 8192).allSatisfy({ $0 == 0 }) else {
        fatalError("it is not wiped")
      }
      guard try addressOfAListThatWent() == address else { fatalError("it is not kept") }
    }
  }

  /// Far more than are kept.
  @Test func thousandsAtOnceAndAllOverAgain() throws {
    for round in 1...2 {
      var lists: [(Holder, UInt8)] = []
      for number in 0..<3000 {
        let byte = UInt8(truncatingIfNeeded: number * round)
        lists.append((try Holder([UInt8](repeating: byte, count: 8192)), byte))
      }
      #expect(lists.allSatisfy { list, byte in list.contents == [UInt8](repeating: byte, count: 8192) })
    }
  }

  @Test func endsTheProcessOnAPartOfAKey() async {
    await #expect(processExitsWith: .failure) { _ = try Holder([UInt8](repeating: 0, count: 31)) }
  }

  @Test func endsTheProcessOnAKeyTooMany() async {
    await #expect(processExitsWith: .failure) { _ = try Holder([UInt8](repeating: 0, count: 257 * 32)) }
  }
}
