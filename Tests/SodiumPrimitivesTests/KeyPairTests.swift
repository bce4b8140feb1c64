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
    #expect(alice.withPrivateKey { Array($0) } == Self.alice)
  }

  /// Zero, one and the order-8 points of the curve: the secret would be the same for everybody.
  @Test(arguments: [0, 1, 2, 3]) func refusesPublicKeysThatProveNothing(number: Int) throws {
    var key = [UInt8](repeating: 0, count: 32)
    switch number {
    case 0: break
    case 1: key[0] = 1
    // p and p - 1, not reduced.
    case 2: key = [0xed] + [UInt8](repeating: 0xff, count: 30) + [0x7f]
    default: key = [0xec] + [UInt8](repeating: 0xff, count: 30) + [0x7f]
    }
    let pair = try KeyPair()
    #expect(throws: CryptoError.notAuthentic) {
      try pair.withSharedSecret(with: key.span.bytes) { _ in }
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

  @Test func agreesWithAnotherImplementation() {
    // PyNaCl 1.5, crypto_aead_chacha20poly1305_ietf_encrypt.
    #expect(sealed([UInt8]("message".utf8), number: 5) == Self.ofAnother)
  }

  private static let ofAnother: [UInt8] = [
    0x4e, 0x6d, 0xe5, 0x79, 0x24, 0x42, 0x22, 0x4c, 0x53, 0xa7, 0xb7, 0x21, 0x22, 0x19, 0x5c, 0xa7, 0x0e,
    0x02, 0xd4, 0x0e, 0xcd, 0x3c, 0x40,
  ]
}
