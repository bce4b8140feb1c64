import Crypto
package import Foundation
import ServiceWire
import SodiumPrimitives
import SwiftASN1
import X509

/// The broker's key and its self-signed certificate: what it signs proves that it is the broker that an app enrolled with, and the leaves
/// that it issues prove to apps who the other one is.
package struct CertificateAuthority: BrokerAuthority {
  private let key: AppKey
  private let subject: DistinguishedName
  private let end: Date

  /// DER.
  package let certificate: Data

  /// How long before now a certificate begins: clocks are set back.
  static let backdating: TimeInterval = 60
  static let authorityLife: TimeInterval = 20 * 365.25 * 86_400
  static let serialByteCount = 16
  static let nonceByteCount = 32
  /// X.509's bound of a common name. A longer app id is only in the alternative names.
  static let commonNameByteCountMax = 64

  /// A new authority.
  package init() throws {
    key = AppKey()
    let digits = Identifier.random().description.prefix(8)
    subject = try DistinguishedName { CommonName("OpenDynamics \(digits)") }
    let now = Date()
    end = now + Self.authorityLife
    let own = try Certificate(
      version: .v3, serialNumber: Self.serial(), publicKey: Certificate.PublicKey(key.key.publicKey),
      notValidBefore: now - Self.backdating, notValidAfter: end, issuer: subject,
      subject: subject, signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
        Critical(KeyUsage(digitalSignature: true, keyCertSign: true))
      }, issuerPrivateKey: Certificate.PrivateKey(key.key))
    certificate = try own.derBytes()
  }

  /// The authority that was made before, from `rawKey` and `certificate`. Throws `privateKeyUnreadable`, `certificateUnreadable` and
  /// `keyOfAnotherCertificate`.
  package init(rawKey: Data, certificate: Data) throws(IdentityError) {
    key = try AppKey(rawBytes: rawKey)
    let parsed = try Certificate.read(certificate)
    guard parsed.publicKey == Certificate.PublicKey(key.key.publicKey) else { throw .keyOfAnotherCertificate }
    subject = parsed.subject
    end = parsed.notValidAfter
    self.certificate = certificate
  }

  /// The 32 bytes that are the key: for the broker's own directory, and for nobody else.
  package var rawKey: Data { key.rawBytes }

  package var fingerprint: Data { fingerprint(of: key.publicKey) }

  package func fingerprint(of publicKey: Data) -> Data { Data(SHA256.hash(data: publicKey)) }

  /// `fingerprint` of an authority, from its certificate (DER). Throws `certificateUnreadable` and `publicKeyUnreadable`.
  package static func fingerprint(ofCertificate certificate: Data) throws(IdentityError) -> Data {
    guard let key = P256.Signing.PublicKey(try Certificate.read(certificate).publicKey) else {
      throw .publicKeyUnreadable
    }
    return Data(SHA256.hash(data: key.derRepresentation))
  }

  package func nonce() -> Data { Self.random(Self.nonceByteCount) }

  package func sign(_ message: Data) throws -> Data { try key.sign(message) }

  package func isSigned(_ message: Data, by publicKey: Data, _ signature: Data) -> Bool {
    AppKey.isSigned(message, by: publicKey, signature)
  }

  /// A leaf, DER, for both sides of TLS. It ends with the authority at the latest. Throws `publicKeyUnreadable`.
  package func issue(appID: String, activationUser: String, publicKey: Data, notAfter: UInt64) throws -> Data
  {
    let leafEnd = min(end, Date(timeIntervalSince1970: TimeInterval(notAfter) / 1000))
    return try issue(
      names: [CertifiedName.app(appID), CertifiedName.user(activationUser)], commonName: appID,
      publicKey: publicKey, from: Date() - Self.backdating, until: leafEnd)
  }

  /// What `issue` makes, with each part that a check looks at given apart.
  func issue(
    names: [GeneralName], commonName: String, publicKey: Data, from begin: Date, until end: Date,
    constraints: BasicConstraints = .notCertificateAuthority,
    usages: [ExtendedKeyUsage.Usage] = [.clientAuth, .serverAuth]
  ) throws -> Data {
    guard let leafKey = try? P256.Signing.PublicKey(derRepresentation: publicKey) else {
      throw IdentityError.publicKeyUnreadable
    }
    let hasCommonName = !commonName.isEmpty && commonName.utf8.count <= Self.commonNameByteCountMax
    let subject =
      hasCommonName ? try DistinguishedName { CommonName(commonName) } : DistinguishedName()
    var extensions = try Certificate.Extensions {
      Critical(constraints)
      Critical(KeyUsage(digitalSignature: true))
    }
    if !usages.isEmpty {
      try extensions.append(ExtendedKeyUsage(usages).makeCertificateExtension())
    }
    if !names.isEmpty {
      // Without a subject the alternative names are critical: RFC 5280, 4.2.1.6.
      try extensions.append(
        Certificate.Extension(SubjectAlternativeNames(names), critical: !hasCommonName))
    }
    return try Certificate(
      version: .v3, serialNumber: Self.serial(), publicKey: Certificate.PublicKey(leafKey),
      notValidBefore: begin, notValidAfter: end, issuer: self.subject, subject: subject,
      signatureAlgorithm: .ecdsaWithSHA256, extensions: extensions,
      issuerPrivateKey: Certificate.PrivateKey(key.key)
    ).derBytes()
  }

  /// Positive, and never begins with a zero byte: so it is encoded in as many bytes.
  static func serial() -> Certificate.SerialNumber {
    var bytes = Array(random(serialByteCount))
    bytes[0] = bytes[0] & 0x7f | 0x40
    return Certificate.SerialNumber(bytes: bytes)
  }

  /// From the system's random numbers, which are those of the kernel.
  private static func random(_ byteCount: Int) -> Data {
    var generator = SystemRandomNumberGenerator()
    return Data((0..<byteCount).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
  }
}

extension Certificate {
  static func read(_ der: Data) throws(IdentityError) -> Certificate {
    do {
      return try Certificate(derEncoded: Array(der))
    } catch {
      throw .certificateUnreadable
    }
  }

  func derBytes() throws -> Data {
    var serializer = DER.Serializer()
    try serializer.serialize(self)
    return Data(serializer.serializedBytes)
  }
}
