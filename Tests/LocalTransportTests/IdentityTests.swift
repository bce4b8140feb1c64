import Crypto
import Foundation
import SwiftASN1
import Testing
import X509

@testable import LocalTransport

struct AppKeyTests {
  @Test func signsSoThatOnlyItsPublicKeyAgrees() throws {
    let key = AppKey()
    let message = Data("opendynamics app 1".utf8)
    let signature = try key.sign(message)
    #expect(AppKey.isSigned(message, by: key.publicKey, signature))
    #expect(!AppKey.isSigned(message + [0], by: key.publicKey, signature))
    #expect(!AppKey.isSigned(message, by: AppKey().publicKey, signature))
    #expect(!AppKey.isSigned(message, by: key.publicKey, signature.dropLast()))
    #expect(!AppKey.isSigned(message, by: key.publicKey, Data()))
  }

  @Test func comesBackFromItsRawBytes() throws {
    let key = AppKey()
    #expect(key.rawBytes.count == AppKey.rawByteCount)
    let again = try AppKey(rawBytes: key.rawBytes)
    #expect(again.publicKey == key.publicKey)
    #expect(AppKey.isSigned(Data([1]), by: key.publicKey, try again.sign(Data([1]))))
  }

  @Test(arguments: [
    Data(), Data(repeating: 1, count: 31), Data(repeating: 1, count: 33), Data(repeating: 0, count: 32),
  ])
  func refusesRawBytesThatAreNoKey(bytes: Data) {
    #expect(throws: IdentityError.privateKeyUnreadable) { try AppKey(rawBytes: bytes) }
  }

  /// The key and the signature of RFC 6979, A.2.5, for SHA-256 and "sample".
  @Test func agreesWithASignatureMadeElsewhere() throws {
    let raw: [UInt8] = [
      0xc9, 0xaf, 0xa9, 0xd8, 0x45, 0xba, 0x75, 0x16, 0x6b, 0x5c, 0x21, 0x57, 0x67, 0xb1, 0xd6, 0x93,
      0x4e, 0x50, 0xc3, 0xdb, 0x36, 0xe8, 0x9b, 0x12, 0x7b, 0x8a, 0x62, 0x2b, 0x12, 0x0f, 0x67, 0x21,
    ]
    let r: [UInt8] = [
      0xef, 0xd4, 0x8b, 0x2a, 0xac, 0xb6, 0xa8, 0xfd, 0x11, 0x40, 0xdd, 0x9c, 0xd4, 0x5e, 0x81, 0xd6,
      0x9d, 0x2c, 0x87, 0x7b, 0x56, 0xaa, 0xf9, 0x91, 0xc3, 0x4d, 0x0e, 0xa8, 0x4e, 0xaf, 0x37, 0x16,
    ]
    let s: [UInt8] = [
      0xf7, 0xcb, 0x1c, 0x94, 0x2d, 0x65, 0x7c, 0x41, 0xd4, 0x36, 0xc7, 0xa1, 0xb6, 0xe2, 0x9f, 0x65,
      0xf3, 0xe9, 0x00, 0xdb, 0xb9, 0xaf, 0xf4, 0x06, 0x4d, 0xc4, 0xab, 0x2f, 0x84, 0x3a, 0xcd, 0xa8,
    ]
    let signature = Data([0x30, 0x46, 0x02, 0x21, 0x00] + r + [0x02, 0x21, 0x00] + s)
    let key = try AppKey(rawBytes: Data(raw))
    #expect(AppKey.isSigned(Data("sample".utf8), by: key.publicKey, signature))
  }

  @Test func takesNoKeyThatIsNotOnP256() throws {
    let message = Data([1, 2, 3])
    let other = P384.Signing.PrivateKey()
    #expect(
      !AppKey.isSigned(
        message, by: other.publicKey.derRepresentation, try other.signature(for: message).derRepresentation))
    let key = AppKey()
    let signature = try key.sign(message)
    #expect(!AppKey.isSigned(message, by: key.key.publicKey.rawRepresentation, signature))
    #expect(!AppKey.isSigned(message, by: key.publicKey.dropLast(), signature))
    #expect(!AppKey.isSigned(message, by: key.publicKey + [0], signature))
    #expect(!AppKey.isSigned(message, by: Data(), signature))
  }
}

struct CertificateAuthorityTests {
  @Test func isSelfSignedAndMayCertifyAndShowItself() throws {
    let authority = try CertificateAuthority()
    let certificate = try Certificate.read(authority.certificate)
    #expect(certificate.publicKey.isValidSignature(certificate.signature, for: certificate))
    #expect(certificate.issuer == certificate.subject)
    #expect(certificate.subject.description.contains(/^CN=OpenDynamics [0-9a-f]{8}$/))
    #expect(try certificate.extensions.basicConstraints == .isCertificateAuthority(maxPathLength: 0))
    #expect(certificate.extensions[oid: .X509ExtensionID.basicConstraints]?.critical == true)
    #expect(try certificate.extensions.keyUsage == KeyUsage(digitalSignature: true, keyCertSign: true))
    let years = certificate.notValidAfter.timeIntervalSinceNow / (365.25 * 86_400)
    #expect(abs(years - 20) < 0.01)
    let key = try #require(P256.Signing.PublicKey(certificate.publicKey)).derRepresentation
    #expect(authority.fingerprint == Data(SHA256.hash(data: key)))
    #expect(authority.fingerprint(of: key) == authority.fingerprint)
  }

  @Test func comesBackAsTheSameAuthority() throws {
    let authority = try CertificateAuthority()
    let again = try CertificateAuthority(rawKey: authority.rawKey, certificate: authority.certificate)
    #expect(again.certificate == authority.certificate)
    #expect(again.fingerprint == authority.fingerprint)
    let leaf = try again.issue(
      appID: "a", activationUser: "u", publicKey: AppKey().publicKey, notAfter: UInt64.max)
    let check = try PeerCheck(authority: authority.certificate, appID: "a", activationUser: "u")
    #expect(check.fault(of: leaf, at: Date()) == nil)
  }

  @Test func refusesAKeyAndACertificateThatDoNotBelongTogether() throws {
    let authority = try CertificateAuthority()
    #expect(throws: IdentityError.keyOfAnotherCertificate) {
      try CertificateAuthority(rawKey: AppKey().rawBytes, certificate: authority.certificate)
    }
    #expect(throws: IdentityError.privateKeyUnreadable) {
      try CertificateAuthority(rawKey: Data(), certificate: authority.certificate)
    }
    #expect(throws: IdentityError.certificateUnreadable) {
      try CertificateAuthority(rawKey: authority.rawKey, certificate: authority.certificate.dropLast())
    }
  }

  @Test func drawsNoncesThatDiffer() throws {
    let authority = try CertificateAuthority()
    let nonces = (0..<100).map { _ in authority.nonce() }
    #expect(Set(nonces).count == 100)
    #expect(nonces.allSatisfy { $0.count == 32 })
  }

  @Test func provesItselfLikeAnApp() throws {
    let authority = try CertificateAuthority()
    let certificate = try Certificate.read(authority.certificate)
    let key = try #require(P256.Signing.PublicKey(certificate.publicKey)).derRepresentation
    let signature = try authority.sign(Data([7]))
    #expect(authority.isSigned(Data([7]), by: key, signature))
    #expect(!authority.isSigned(Data([8]), by: key, signature))
  }

  @Test func issuesALeafWithAllThatThePageSays() throws {
    let authority = try CertificateAuthority()
    let key = AppKey()
    let notAfter = Date().addingTimeInterval(86_400)
    let leaf = try Certificate.read(
      authority.issue(
        appID: "com.example.app", activationUser: "jo@example.com", publicKey: key.publicKey,
        notAfter: UInt64(notAfter.timeIntervalSince1970 * 1000)))
    #expect(leaf.version == .v3)
    #expect(leaf.subject.description == "CN=com.example.app")
    #expect(P256.Signing.PublicKey(leaf.publicKey)?.derRepresentation == key.publicKey)
    #expect(leaf.issuer == (try Certificate.read(authority.certificate).subject))
    #expect(abs(leaf.notValidAfter.timeIntervalSince(notAfter)) <= 1)
    #expect(abs(leaf.notValidBefore.timeIntervalSinceNow + 60) < 30)
    #expect(try leaf.extensions.basicConstraints == .notCertificateAuthority)
    #expect(try leaf.extensions.keyUsage == KeyUsage(digitalSignature: true))
    #expect(try Set(leaf.extensions.extendedKeyUsage ?? ExtendedKeyUsage()) == [.clientAuth, .serverAuth])
    #expect(
      try Array(leaf.extensions.subjectAlternativeNames ?? SubjectAlternativeNames()) == [
        .uniformResourceIdentifier("urn:opendynamics:app:com.example.app"),
        .uniformResourceIdentifier("urn:opendynamics:user:jo%40example.com"),
      ])
  }

  @Test(arguments: [(64, true), (65, false)])
  func keepsALongAppIDInTheAlternativeNamesOnly(byteCount: Int, hasCommonName: Bool) throws {
    let authority = try CertificateAuthority()
    let appID = String(repeating: "a", count: byteCount)
    let der = try authority.issue(
      appID: appID, activationUser: "u", publicKey: AppKey().publicKey, notAfter: UInt64.max)
    let leaf = try Certificate.read(der)
    #expect(leaf.subject.isEmpty != hasCommonName)
    #expect(leaf.extensions[oid: .X509ExtensionID.subjectAlternativeName]?.critical == !hasCommonName)
    let check = try PeerCheck(authority: authority.certificate, appID: appID, activationUser: "u")
    #expect(check.fault(of: der, at: Date()) == nil)
  }

  @Test func givesEachLeafASerialOfItsOwnAndNoLifeAfterItsOwn() throws {
    let authority = try CertificateAuthority()
    let key = AppKey()
    let leaves = try (0..<50).map { _ in
      try Certificate.read(
        authority.issue(appID: "a", activationUser: "u", publicKey: key.publicKey, notAfter: UInt64.max))
    }
    #expect(Set(leaves.map(\.serialNumber)).count == 50)
    let end = try Certificate.read(authority.certificate).notValidAfter
    #expect(leaves.allSatisfy { $0.notValidAfter <= end && $0.serialNumber.bytes.count == 16 })
  }

  @Test func certifiesNoKeyThatIsNotOnP256() throws {
    let authority = try CertificateAuthority()
    for key in [P384.Signing.PrivateKey().publicKey.derRepresentation, Data(), Data([0x30, 0])] {
      #expect(throws: IdentityError.publicKeyUnreadable) {
        try authority.issue(appID: "a", activationUser: "u", publicKey: key, notAfter: UInt64.max)
      }
    }
  }
}
