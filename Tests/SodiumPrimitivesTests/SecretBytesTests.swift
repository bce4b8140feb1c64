import SodiumPrimitives
import Testing

struct SecretBytesTests {
  @Test(arguments: [0, 1, 31, 32, 4_096, 100_000])
  func beginsAsZeros(count: Int) throws {
    let secret = try SecretBytes(count: count)
    #expect(secret.count == count)
    #expect(contents(secret) == [UInt8](repeating: 0, count: count))
  }

  @Test(arguments: [0, 1, 31, 32, 4_096, 100_000])
  func holdsWhatWasCopiedIn(count: Int) throws {
    let bytes = Random.bytes(count)
    let secret = try bytes.span.withUnsafeBytes { bytes throws(CryptoError) in
      try SecretBytes(copying: bytes)
    }
    #expect(contents(secret) == bytes)
  }

  @Test(arguments: ["", "passphrase", "Grüße, 世界"])
  func holdsTheUTF8OfAString(text: String) throws {
    let secret = try SecretBytes(utf8: text)
    #expect(contents(secret) == Array(text.utf8))
  }

  @Test func copyLivesOnItsOwn() throws {
    var original = try SecretBytes(utf8: "original")
    let copy = try original.copy()
    original.withUnsafeMutableBytes { $0[0] = UInt8(ascii: "O") }
    #expect(contents(original) == Array("Original".utf8))
    #expect(contents(copy) == Array("original".utf8))
  }

  @Test func randomDiffersEachTime() throws {
    let first = try SecretBytes.random(count: 32)
    let second = try SecretBytes.random(count: 32)
    #expect(contents(first) != contents(second))
  }

  @Test func throwsWhenThereIsNoSuchMemory() {
    #expect(throws: CryptoError.secretMemoryExhausted(byteCount: 1 << 60)) {
      _ = try SecretBytes(count: 1 << 60)
    }
  }

  @Test func errorThrownInTheClosureComesOut() throws {
    struct Refused: Error {}
    let secret = try SecretBytes(count: 4)
    #expect(throws: Refused.self) {
      try secret.withUnsafeBytes { _ throws(Refused) in throw Refused() }
    }
  }

  private func contents(_ secret: borrowing SecretBytes) -> [UInt8] {
    secret.withUnsafeBytes { [UInt8]($0) }
  }
}
