internal import Crypto
public import Foundation
internal import PushWire

/// The public half of a channel's keys: a back end that has them sends what the relay cannot read.
/// Source: RFC 8291, section 3.2.
public struct PushPublicKeys: Sendable, Equatable {
  /// 65 bytes: an uncompressed point of P-256, `p256dh` in other push services.
  public let publicKey: Data
  /// 16 random bytes, `auth` in other push services.
  public let authenticationSecret: Data

  public var publicKeyBase64URL: String { publicKey.base64URL }
  public var authenticationSecretBase64URL: String { authenticationSecret.base64URL }
}

/// The keys of a channel: 32 bytes of a P-256 key and 16 random ones.
struct WebPushKeys: Sendable {
  private static let tagByteCount = 16
  private static let headByteCount = 21

  private let key: P256.KeyAgreement.PrivateKey
  private let secret: Data

  struct Unreadable: Error {}

  init() {
    key = P256.KeyAgreement.PrivateKey()
    secret = SymmetricKey(size: .bits128).withUnsafeBytes { Data($0) }
  }

  init?(bytes: Data) {
    guard bytes.count == 48, let key = try? P256.KeyAgreement.PrivateKey(rawRepresentation: bytes.prefix(32))
    else { return nil }
    self.key = key
    secret = Data(bytes.suffix(16))
  }

  var bytes: Data { key.rawRepresentation + secret }

  var publicKeys: PushPublicKeys {
    PushPublicKeys(publicKey: key.publicKey.x963Representation, authenticationSecret: secret)
  }

  /// Opens a body with `Content-Encoding: aes128gcm`. Sources: RFC 8291, section 3.4; RFC 8188, section 2.
  func open(_ body: Data) throws -> Data {
    let body = Data(body)
    guard body.count > Self.headByteCount else { throw Unreadable() }
    let salt = body.prefix(16)
    let recordByteCount = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
    let idByteCount = Int(body[20])
    guard recordByteCount >= Self.tagByteCount + 2, idByteCount == 65,
      body.count > Self.headByteCount + idByteCount
    else { throw Unreadable() }
    let id = body[Self.headByteCount..<Self.headByteCount + idByteCount]
    let other = try P256.KeyAgreement.PublicKey(x963Representation: id)
    let shared = try key.sharedSecretFromKeyAgreement(with: other)
    let info = Data("WebPush: info\0".utf8) + key.publicKey.x963Representation + id
    let input = shared.hkdfDerivedSymmetricKey(
      using: SHA256.self, salt: secret, sharedInfo: info, outputByteCount: 32)
    let contentKey = HKDF<SHA256>.deriveKey(
      inputKeyMaterial: input, salt: salt, info: Data("Content-Encoding: aes128gcm\0".utf8),
      outputByteCount: 16)
    let nonceBase = HKDF<SHA256>.deriveKey(
      inputKeyMaterial: input, salt: salt, info: Data("Content-Encoding: nonce\0".utf8),
      outputByteCount: 12
    ).withUnsafeBytes { Array($0) }

    var plain = Data()
    var rest = body.dropFirst(Self.headByteCount + idByteCount)
    var number: UInt64 = 0
    while !rest.isEmpty {
      let record = rest.prefix(recordByteCount)
      rest = rest.dropFirst(recordByteCount)
      var nonce = nonceBase
      for index in 0..<8 { nonce[4 + index] ^= UInt8(truncatingIfNeeded: number >> (56 - 8 * UInt64(index))) }
      number += 1
      guard record.count > Self.tagByteCount else { throw Unreadable() }
      let box = try AES.GCM.SealedBox(
        nonce: AES.GCM.Nonce(data: nonce), ciphertext: record.dropLast(Self.tagByteCount),
        tag: record.suffix(Self.tagByteCount))
      let padded = try AES.GCM.open(box, using: contentKey)
      // Zeros, and before them 2 in the last record or 1 in the others.
      guard let end = padded.lastIndex(where: { $0 != 0 }), padded[end] == (rest.isEmpty ? 2 : 1) else {
        throw Unreadable()
      }
      plain += padded[..<end]
    }
    return plain
  }
}
