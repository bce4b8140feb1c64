import Crypto
package import Foundation

/// An app's key for signatures: ECDSA on P-256 over SHA-256. It is made in the app's container and never leaves it.
package struct AppKey: Sendable {
  let key: P256.Signing.PrivateKey

  package static let rawByteCount = 32

  /// A new key, at random.
  package init() { key = P256.Signing.PrivateKey() }

  /// From `rawBytes`. Throws `privateKeyUnreadable`.
  package init(rawBytes: Data) throws(IdentityError) {
    do {
      key = try P256.Signing.PrivateKey(rawRepresentation: rawBytes)
    } catch {
      throw .privateKeyUnreadable
    }
  }

  /// The 32 bytes that are the key: for the container, and for nobody else.
  package var rawBytes: Data { key.rawRepresentation }

  /// DER SubjectPublicKeyInfo.
  package var publicKey: Data { key.publicKey.derRepresentation }

  /// An ECDSA signature in DER, another one each time.
  package func sign(_ message: Data) throws -> Data { try key.signature(for: message).derRepresentation }

  /// Whether `signature` (DER) is that of `publicKey` (DER SubjectPublicKeyInfo). False for bytes that are neither, and for a key that is
  /// not on P-256.
  package static func isSigned(_ message: Data, by publicKey: Data, _ signature: Data) -> Bool {
    guard let key = try? P256.Signing.PublicKey(derRepresentation: publicKey),
      let signature = try? P256.Signing.ECDSASignature(derRepresentation: signature)
    else { return false }
    return key.isValidSignature(signature, for: message)
  }
}
