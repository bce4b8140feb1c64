import SodiumPrimitives
import Testing

struct KeyPairTests {
  /// RFC 7748, section 6.1.
  private static let alice: [UInt8] = [
    0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2, 0x66, 0x45,
    0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a,
  ]
  private static let alicesPublicKey: [UInt8] = [
    0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d, 0xdc, 0xb4, 0x3e, 0xf7, 0x5a,
    0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38, 0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e, 0xaa, 0x9b, 0x4e, 0x6a,
  ]
  private static let bobsPublicKey: [UInt8] = [
    0xde, 0x9e, 0xdb, 0x7d, 0x7b, 0x7d, 0xc1, 0xb4, 0xd3, 0x5b, 0x61, 0xc2, 0xec, 0xe4, 0x35, 0x37,
    0x3f, 0x83, 0x43, 0xc8, 0x5b, 0x78, 0x67, 0x4d, 0xad, 0xfc, 0x7e, 0x14, 0x6f, 0x88, 0x2b, 0x4f,
  ]
  private static let secret: [UInt8] = [
    0x4a, 0x5d, 0x9d, 0x5b, 0xa4, 0xce, 0x2d, 0xe1, 0x72, 0x8e, 0x3b, 0xf4, 0x80, 0x35, 0x0f, 0x25,
    0xe0, 0x7e, 0x21, 0xc9, 0x47, 0xd1, 0x9e, 0x33, 0x76, 0xf0, 0x9b, 0x3c, 0x1e, 0x16, 0x17, 0x42,
  ]

  @Test func agreesWithTheStandard() throws {
    let alice = try KeyPair(copying: Self.alice)
    #expect(alice.publicKey == Self.alicesPublicKey)
    let secret = try alice.withSharedSecret(with: Self.bobsPublicKey.span.bytes) { Array($0) }
    #expect(secret == Self.secret)
    #expect(try alice.withPrivateKey { Array($0) } == Self.alice)
  }

  @Test func agreesFromTheOtherSide() throws {
    let bob = try KeyPair(
      copying: hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    #expect(bob.publicKey == Self.bobsPublicKey)
    let secret = try bob.withSharedSecret(with: Self.alicesPublicKey.span.bytes) { Array($0) }
    #expect(secret == Self.secret)
  }

  /// RFC 7748, section 5.2: each secret is the next private key, and the last private key is the next
  /// public one.
  @Test func agreesWithTheStandardAThousandTimes() throws {
    var key = [9] + [UInt8](repeating: 0, count: 31)
    var publicKey = key
    for round in 1...1000 {
      let secret = try KeyPair(copying: key).withSharedSecret(with: publicKey.span.bytes) { Array($0) }
      (key, publicKey) = (secret, key)
      if round == 1 {
        #expect(key == hex("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"))
      }
    }
    #expect(key == hex("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"))
  }

  @Test func hasTheSamePublicKeyWhenItsPrivateKeyComesBack() throws {
    let pair = try KeyPair()
    let kept = try pair.withPrivateKey { Array($0) }
    #expect(try KeyPair(copying: kept).publicKey == pair.publicKey)
    let again = try pair.withPrivateKey { key throws(CryptoError) in try KeyPair(copying: key).publicKey }
    #expect(again == pair.publicKey)
  }

  /// The points of low order, and those of them that have a second form: the secret would be the same
  /// for everybody.
  @Test(arguments: [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  ])
  func refusesPublicKeysThatProveNothing(text: String) throws {
    let pair = try KeyPair()
    // The highest bit of a public key does not count.
    for highest: UInt8 in [0, 0x80] {
      var key = hex(text)
      key[31] |= highest
      #expect(throws: CryptoError.notAuthentic) {
        try pair.withSharedSecret(with: key.span.bytes) { _ in Issue.record("a secret") }
      }
    }
  }

  @Test func isAnotherOneEachTime() throws {
    #expect(try KeyPair().publicKey != KeyPair().publicKey)
  }
}

struct ChaChaPolyTests {
  private let key = [UInt8](0..<32)
  private let ad = [UInt8]("associated".utf8)

  private func sealed(_ message: [UInt8], number: UInt64) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: message.count + ChaChaPoly.tagByteCount)
    output.withUnsafeMutableBytes {
      ChaChaPoly.seal(message.span.bytes, key: key.span.bytes, number: number, ad: ad.span.bytes, into: $0)
    }
    return output
  }

  private func opened(_ sealed: [UInt8], number: UInt64, ad: [UInt8]) throws -> [UInt8] {
    var output = [UInt8](repeating: 0xaa, count: sealed.count - ChaChaPoly.tagByteCount)
    try output.withUnsafeMutableBytes {
      try ChaChaPoly.open(sealed.span.bytes, key: key.span.bytes, number: number, ad: ad.span.bytes, into: $0)
    }
    return output
  }

  @Test(arguments: [0, 1, 64, 1000]) func opensWhatItSealed(byteCount: Int) throws {
    let message = Random.bytes(byteCount)
    let sealed = sealed(message, number: 1 << 40)
    #expect(try opened(sealed, number: 1 << 40, ad: ad) == message)
    #expect(throws: CryptoError.notAuthentic) { try opened(sealed, number: 1, ad: ad) }
    #expect(throws: CryptoError.notAuthentic) { try opened(sealed, number: 1 << 40, ad: []) }
    for i in sealed.indices where i < 40 || i >= sealed.count - 16 {
      var changed = sealed
      changed[i] ^= 0x10
      #expect(throws: CryptoError.notAuthentic) { try opened(changed, number: 1 << 40, ad: ad) }
    }
  }

  @Test func agreesWithAnotherImplementation() throws {
    // PyNaCl 1.5, crypto_aead_chacha20poly1305_ietf_encrypt.
    let sealed = sealed([UInt8]("message".utf8), number: 5)
    #expect(sealed == hex("4e6de5792442224c53a7b72122195ca70e02d40ecd3c40"))
    #expect(try opened(sealed, number: 5, ad: ad) == [UInt8]("message".utf8))
  }

  /// Each byte of the number has its place in the nonce. OpenSSL, through Python's cryptography 48.
  @Test(
    arguments: [
      (0, "6a55cc3933de45d4bcbdca588e54ae4f"), (1, "c9dadf37bdfb53ca39bcbf8867d14e53"),
      (0x0807_0605_0403_0201, "fed479ce2e53fb53aa2411b27421aed5"), (.max, "10e1721c33e55d247577e4625c6ba560"),
    ] as [(UInt64, String)])
  func putsTheNumberIntoTheNonce(number: UInt64, tag: String) {
    #expect(sealed([], number: number) == hex(tag))
  }

  /// Also where the tag alone is wrong, and so the plaintext would be the right one.
  @Test func leavesNoPlaintextWhenItRefuses() {
    let message = [UInt8](repeating: 0x55, count: 200)
    let whole = sealed(message, number: 3)
    for place in [0, 100, 199, 200, 215] {
      var changed = whole
      changed[place] ^= 1
      var output = [UInt8](repeating: 0xaa, count: message.count)
      #expect(throws: CryptoError.notAuthentic) {
        try output.withUnsafeMutableBytes {
          try ChaChaPoly.open(changed.span.bytes, key: key.span.bytes, number: 3, ad: ad.span.bytes, into: $0)
        }
      }
      #expect(output.allSatisfy { $0 == 0 || $0 == 0xaa }, "byte \(place)")
    }
  }
}
