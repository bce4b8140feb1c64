package import Foundation

/// The broker's signing key and certificate, and what it draws at random. An implementation brings the cryptography; the state machine
/// decides what is signed and for whom.
package protocol BrokerAuthority: Sendable {
  /// DER.
  var certificate: Data { get }
  /// SHA-256 of the public key.
  var fingerprint: Data { get }
  /// 32 random bytes.
  func nonce() -> Data
  /// ECDSA over SHA-256, DER.
  func sign(_ message: Data) throws -> Data
  /// Whether `signature` is that of `publicKey` (DER SubjectPublicKeyInfo, P-256). False for a key that is none.
  func isSigned(_ message: Data, by publicKey: Data, _ signature: Data) -> Bool
  /// SHA-256.
  func fingerprint(of publicKey: Data) -> Data
  /// A leaf, DER, that names the app and its activation user, and ends then (milliseconds since 1970).
  func issue(appID: String, activationUser: String, publicKey: Data, notAfter: UInt64) throws -> Data
}

/// The texts that are signed on a broker connection.
package enum SignedText {
  package static func broker(appNonce: Data, brokerNonce: Data) -> Data {
    label("opendynamics broker 1") + part(appNonce) + part(brokerNonce)
  }

  package static func app(
    brokerNonce: Data, appNonce: Data, authority: Data, appID: String, activationUser: String
  ) -> Data {
    label("opendynamics app 1") + part(brokerNonce) + part(appNonce) + part(authority)
      + part(Data(appID.utf8))
      + part(Data(activationUser.utf8))
  }

  package static func renewal(brokerNonce: Data, authority: Data, appID: String, activationUser: String)
    -> Data
  {
    label("opendynamics renewal 1") + part(brokerNonce) + part(authority) + part(Data(appID.utf8))
      + part(Data(activationUser.utf8))
  }

  private static func label(_ text: String) -> Data { Data(text.utf8) + [0] }

  private static func part(_ bytes: Data) -> Data {
    Data((0..<4).map { UInt8(truncatingIfNeeded: bytes.count >> (8 * $0)) }) + bytes
  }
}
