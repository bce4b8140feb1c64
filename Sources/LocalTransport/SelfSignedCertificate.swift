package import Foundation
import SwiftASN1
import X509

extension AppKey {
  /// A certificate, DER, that this key signed for itself: what an app, or a tool, shows to a broker, to whom only the key counts. It is
  /// another one each time, and holds as long as an authority.
  package func selfSignedCertificate() throws -> Data {
    let name = try DistinguishedName { CommonName("OpenDynamics") }
    let now = Date()
    return try Certificate(
      version: .v3, serialNumber: CertificateAuthority.serial(),
      publicKey: Certificate.PublicKey(key.publicKey),
      notValidBefore: now - CertificateAuthority.backdating,
      notValidAfter: now + CertificateAuthority.authorityLife, issuer: name, subject: name,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.notCertificateAuthority)
        Critical(KeyUsage(digitalSignature: true))
        try ExtendedKeyUsage([.clientAuth, .serverAuth])
      }, issuerPrivateKey: Certificate.PrivateKey(key)
    ).derBytes()
  }
}
