internal import Crypto
internal import Foundation
internal import SwiftASN1
internal import X509

/// A certificate for `localhost` and the loopback addresses, made on the spot: for trying the relay on one
/// machine. Devices and back ends are given it as an authority.
package struct LoopbackCertificate: Sendable {
  /// PEM.
  package let certificate: String
  /// PEM.
  package let key: String

  /// The certificate (PEM) is valid for another month at least.
  package static func isCurrent(_ pem: String) -> Bool {
    guard let certificate = try? Certificate(pemEncoded: pem) else { return false }
    return certificate.notValidAfter > Date() + 30 * 86_400
  }

  package init() throws {
    let key = P256.Signing.PrivateKey()
    let name = try DistinguishedName { CommonName("OpenDynamics push relay on this machine") }
    let now = Date()
    let own = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: Certificate.PublicKey(key.publicKey),
      notValidBefore: now - 3600, notValidAfter: now + 825 * 86_400, issuer: name, subject: name,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
        Critical(KeyUsage(digitalSignature: true, keyCertSign: true))
        try ExtendedKeyUsage([.serverAuth])
        SubjectAlternativeNames([
          .dnsName("localhost"), .ipAddress(ASN1OctetString(contentBytes: [127, 0, 0, 1])),
          .ipAddress(ASN1OctetString(contentBytes: [UInt8](repeating: 0, count: 15) + [1])),
        ])
      }, issuerPrivateKey: Certificate.PrivateKey(key))
    certificate = try own.serializeAsPEM().pemString + "\n"
    self.key = key.pemRepresentation + "\n"
  }
}
