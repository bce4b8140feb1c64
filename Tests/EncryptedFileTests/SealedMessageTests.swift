import SodiumPrimitives
import Testing

@testable import EncryptedFile

struct SealedMessageTests {
  static let byteCounts = [0, 1, 16, 70, 255, 256, 4096, 4097, 40_000]

  @Test(arguments: byteCounts, CipherBackend.allCases)
  func opensWhatWasSealed(count: Int, backend: CipherBackend) throws {
    let key = try SecretKey.random()
    let plaintext = Random.bytes(count)
    let ad = Random.bytes(48)
    let cipher = SecretStreamCipher(backend)
    let one = try SealedMessage.seal(plaintext, key: key, ad: ad, cipher: cipher)
    let other = try SealedMessage.seal(plaintext, key: key, ad: ad, cipher: cipher)
    #expect(one.count == count + 41)
    #expect(!same(Array(one[0..<24]), Array(other[0..<24])))
    for opening in CipherBackend.allCases {
      let opened = try SealedMessage.open(one, key: key, ad: ad, cipher: SecretStreamCipher(opening))
      #expect(same(opened, plaintext))
    }
  }

  @Test(arguments: [1, 70, 256], CipherBackend.allCases)
  func noticesEveryChangedByte(count: Int, backend: CipherBackend) throws {
    let keyBytes = Random.bytes(32)
    let ad = Random.bytes(48)
    let cipher = SecretStreamCipher(backend)
    let sealed = try SealedMessage.seal(
      Random.bytes(count), key: try SecretKey(bytes: keyBytes), ad: ad, cipher: cipher)

    func refuse(_ sealed: [UInt8], key: [UInt8], ad: [UInt8], _ what: String) throws {
      let key = try SecretKey(bytes: key)
      do {
        _ = try SealedMessage.open(sealed, key: key, ad: ad, cipher: cipher)
        throw Mismatch("opened with \(what)")
      } catch CryptoError.notAuthentic {}
    }
    func flipped(_ bytes: [UInt8], _ index: Int) -> [UInt8] {
      var bytes = bytes
      bytes[index] ^= 1 << UInt8(index % 8)
      return bytes
    }
    for index in sealed.indices {
      try refuse(flipped(sealed, index), key: keyBytes, ad: ad, "byte \(index) changed")
    }
    for index in ad.indices {
      try refuse(sealed, key: keyBytes, ad: flipped(ad, index), "associated data byte \(index) changed")
    }
    for index in keyBytes.indices {
      try refuse(sealed, key: flipped(keyBytes, index), ad: ad, "key byte \(index) changed")
    }
    try refuse(sealed + [0], key: keyBytes, ad: ad, "a byte more")
    try refuse(Array(sealed.dropLast()), key: keyBytes, ad: ad, "a byte less")
  }

  @Test func refusesMessageShorterThanAny() throws {
    for count in [0, 24, 40] {
      let key = try SecretKey.random()
      do {
        _ = try SealedMessage.open(Random.bytes(count), key: key, ad: [], cipher: SecretStreamCipher())
        Issue.record("\(count) bytes opened")
      } catch {
        #expect(error == .tooShort(byteCount: count, minimum: 41))
      }
    }
  }
}
