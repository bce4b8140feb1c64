import Crypto
import Foundation
import ServiceWire
import SwiftASN1
import Testing
import X509

@testable import LocalTransport

/// Each leaf is right but for one thing.
struct PeerCheckTests {
  let authority: CertificateAuthority
  let check: PeerCheck
  let key = AppKey()
  let now = Date()

  init() throws {
    authority = try CertificateAuthority()
    check = try PeerCheck(authority: authority.certificate, appID: "app", activationUser: "user")
  }

  func leaf(
    by issuer: CertificateAuthority? = nil,
    names: [GeneralName] = [CertifiedName.app("app"), CertifiedName.user("user")],
    from begin: TimeInterval = -60, until end: TimeInterval = 3600,
    constraints: BasicConstraints = .notCertificateAuthority,
    usages: [ExtendedKeyUsage.Usage] = [.clientAuth, .serverAuth]
  ) throws -> Data {
    try (issuer ?? authority).issue(
      names: names, commonName: "app", publicKey: key.publicKey, from: now + begin, until: now + end,
      constraints: constraints, usages: usages)
  }

  @Test func takesTheRightLeaf() throws {
    #expect(check.fault(of: try leaf(), at: now) == nil)
    #expect(
      check.fault(of: try leaf(names: [CertifiedName.user("user"), CertifiedName.app("app")]), at: now) == nil
    )
  }

  @Test func refusesTheLeafOfAnotherAuthority() throws {
    #expect(check.fault(of: try leaf(by: CertificateAuthority()), at: now) == .certificateNotFound)
  }

  @Test func refusesTheLeafOfAnotherAuthorityWithTheSameName() throws {
    let name = try Certificate.read(authority.certificate).subject
    let forger = AppKey()
    let forged = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(),
      publicKey: Certificate.PublicKey(forger.key.publicKey),
      notValidBefore: now - 60, notValidAfter: now + 3600, issuer: name, subject: name,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
      },
      issuerPrivateKey: Certificate.PrivateKey(forger.key))
    let other = try CertificateAuthority(rawKey: forger.rawBytes, certificate: forged.derBytes())
    let leaf = try leaf(by: other)
    #expect(check.fault(of: leaf, at: now) == .certificateNotFound)
    let otherCheck = try PeerCheck(authority: other.certificate, appID: "app", activationUser: "user")
    #expect(otherCheck.fault(of: leaf, at: now) == nil)
  }

  @Test func refusesASelfSignedLeaf() throws {
    let name = try Certificate.read(authority.certificate).subject
    let own = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(),
      publicKey: Certificate.PublicKey(key.key.publicKey),
      notValidBefore: now - 60, notValidAfter: now + 3600, issuer: name, subject: name,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        SubjectAlternativeNames([CertifiedName.app("app"), CertifiedName.user("user")])
        try ExtendedKeyUsage([.clientAuth, .serverAuth])
      }, issuerPrivateKey: Certificate.PrivateKey(key.key))
    #expect(check.fault(of: try own.derBytes(), at: now) == .certificateNotFound)
  }

  @Test func refusesTheAuthorityItself() {
    #expect(check.fault(of: authority.certificate, at: now) == .certificateNotFound)
  }

  @Test func refusesAChangedLeaf() throws {
    let leaf = try leaf()
    for index in stride(from: leaf.startIndex, to: leaf.endIndex, by: 7) {
      var changed = leaf
      changed[index] ^= 1
      #expect(check.fault(of: changed, at: now) == .certificateNotFound, "byte \(index)")
    }
    #expect(check.fault(of: leaf.dropLast(), at: now) == .certificateNotFound)
    #expect(check.fault(of: leaf + [0], at: now) == .certificateNotFound)
    #expect(check.fault(of: Data(), at: now) == .certificateNotFound)
  }

  @Test func takesALeafOnlyInItsTime() throws {
    let leaf = try leaf()
    let certificate = try Certificate.read(leaf)
    // Whole seconds.
    let (begin, end) = (certificate.notValidBefore, certificate.notValidAfter)
    #expect(abs(begin.timeIntervalSince(now) + 60) <= 1 && abs(end.timeIntervalSince(now) - 3600) <= 1)
    #expect(check.fault(of: leaf, at: begin - 0.5) == .certificateNotFound)
    #expect(check.fault(of: leaf, at: begin) == nil)
    #expect(check.fault(of: leaf, at: end) == nil)
    #expect(check.fault(of: leaf, at: end + 0.5) == .certificateNotFound)
  }

  @Test func tellsAnotherUserFromAnotherApp() throws {
    let otherUser = try leaf(names: [CertifiedName.app("app"), CertifiedName.user("other")])
    #expect(check.fault(of: otherUser, at: now) == .enterpriseUserNotMatch)
    let otherApp = try leaf(names: [CertifiedName.app("other"), CertifiedName.user("user")])
    #expect(check.fault(of: otherApp, at: now) == .certificateNotFound)
    let otherBoth = try leaf(names: [CertifiedName.app("other"), CertifiedName.user("other")])
    #expect(check.fault(of: otherBoth, at: now) == .certificateNotFound)
    let expired = try leaf(names: [CertifiedName.app("app"), CertifiedName.user("other")], until: -1)
    #expect(check.fault(of: expired, at: now) == .certificateNotFound)
  }

  @Test(
    arguments: [
      [],
      [CertifiedName.app("app")],
      [CertifiedName.user("user")],
      [CertifiedName.app("app"), CertifiedName.app("app")],
      [CertifiedName.app("app"), CertifiedName.app("other")],
      [CertifiedName.app("app"), CertifiedName.app("other"), CertifiedName.user("user")],
      [CertifiedName.app("app"), CertifiedName.user("user"), CertifiedName.user("other")],
      [CertifiedName.app("app"), CertifiedName.user("user"), .dnsName("app")],
      [.dnsName("urn:opendynamics:app:app"), CertifiedName.user("user")],
      [CertifiedName.app("app"), .rfc822Name("urn:opendynamics:user:user")],
    ] as [[GeneralName]])
  func refusesEverythingButOneAppAndOneUser(names: [GeneralName]) throws {
    #expect(check.fault(of: try leaf(names: names), at: now) == .certificateNotFound)
  }

  @Test(arguments: [[], [.clientAuth], [.serverAuth], [.any]] as [[ExtendedKeyUsage.Usage]])
  func refusesALeafThatIsNotForBothSidesOfTLS(usages: [ExtendedKeyUsage.Usage]) throws {
    #expect(check.fault(of: try leaf(usages: usages), at: now) == .certificateNotFound)
  }

  @Test func refusesAnAuthority() throws {
    #expect(
      check.fault(of: try leaf(constraints: .isCertificateAuthority(maxPathLength: nil)), at: now)
        == .certificateNotFound)
  }

  @Test(arguments: [true, false])
  func refusesWhatIsCriticalAndNotUnderstood(isCritical: Bool) throws {
    let issuer = try AppKey(rawBytes: authority.rawKey)
    let leaf = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(),
      publicKey: Certificate.PublicKey(key.key.publicKey),
      notValidBefore: now - 60, notValidAfter: now + 3600,
      issuer: Certificate.read(authority.certificate).subject,
      subject: DistinguishedName { CommonName("app") },
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        SubjectAlternativeNames([CertifiedName.app("app"), CertifiedName.user("user")])
        try ExtendedKeyUsage([.clientAuth, .serverAuth])
        Certificate.Extension(oid: [1, 2, 3, 4], critical: isCritical, value: [5, 0])
      }, issuerPrivateKey: Certificate.PrivateKey(issuer.key))
    #expect(
      check.fault(of: try leaf.derBytes(), at: now) == (isCritical ? .certificateNotFound : nil))
  }

  // MARK: Names

  @Test(
    arguments: [
      ("com.example.app-1_2~3", "com.example.app-1_2~3"), ("", ""), ("a b", "a%20b"), ("50%", "50%25"),
      ("a:b/c?d#e", "a%3Ab%2Fc%3Fd%23e"), ("\u{0}\n", "%00%0A"), ("ü", "%C3%BC"), ("u\u{308}", "u%CC%88"),
      ("𝒪", "%F0%9D%92%AA"),
    ])
  func encodesWhatIsNoLetter(text: String, encoded: String) throws {
    #expect(CertifiedName.percentEncoded(text) == encoded)
    let leaf = try authority.issue(
      appID: text, activationUser: text, publicKey: key.publicKey, notAfter: UInt64.max)
    let check = try PeerCheck(authority: authority.certificate, appID: text, activationUser: text)
    #expect(check.fault(of: leaf, at: Date()) == nil)
  }

  /// Swift's strings are equal then; the names are not.
  @Test func tellsNamesApartThatLookAlike() throws {
    let leaf = try leaf(names: [CertifiedName.app("\u{fc}"), CertifiedName.user("user")])
    let alike = try PeerCheck(authority: authority.certificate, appID: "u\u{308}", activationUser: "user")
    #expect(alike.fault(of: leaf, at: now) == .certificateNotFound)
    let same = try PeerCheck(authority: authority.certificate, appID: "\u{fc}", activationUser: "user")
    #expect(same.fault(of: leaf, at: now) == nil)
  }

  @Test func needsAReadableAuthority() {
    #expect(throws: IdentityError.certificateUnreadable) {
      try PeerCheck(authority: Data([0x30]), appID: "app", activationUser: "user")
    }
  }
}
