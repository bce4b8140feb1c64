package import Foundation

/// The broker's certificate, and what it draws at random. An implementation brings the cryptography; the state machine decides for whom a
/// leaf is issued.
package protocol BrokerAuthority: Sendable {
  /// SHA-256 of the public key.
  var fingerprint: Data { get }
  /// 32 random bytes.
  func nonce() -> Data
  /// SHA-256.
  func fingerprint(of publicKey: Data) -> Data
  /// A leaf, DER, that names the app and its activation user, and ends then (milliseconds since 1970).
  func issue(appID: String, activationUser: String, publicKey: Data, notAfter: UInt64) throws -> Data
}
