package import Foundation
package import ServiceWire
import SwiftASN1
import X509

/// Decides whether the certificate that a peer shows is that of the app of an introduction (SERVICE-PROTOCOL.md, "The channel").
package struct PeerCheck: Sendable {
  private let authority: Certificate
  private let app: GeneralName
  private let user: GeneralName

  /// `authority` is the pinned certificate, DER; the user is one's own. Throws `certificateUnreadable`.
  package init(authority: Data, appID: String, activationUser: String) throws(IdentityError) {
    self.authority = try Certificate.read(authority)
    app = CertifiedName.app(appID)
    user = CertifiedName.user(activationUser)
  }

  /// What is wrong with the certificate (DER) at that time: nil, `certificateNotFound`, or, when it is right but for the user,
  /// `enterpriseUserNotMatch`. Says nothing of the key: TLS proves that the peer has it.
  package func fault(of leaf: Data, at time: Date) -> ProtocolFault? {
    guard let leaf = try? Certificate.read(leaf), isIssuedHere(leaf), isValid(leaf, at: time),
      isLeafForBothSides(leaf), let names = try? leaf.extensions.subjectAlternativeNames, names.count == 2,
      names.contains(app), let other = names.first(where: { $0 != app }), Self.isUser(other)
    else { return .certificateNotFound }
    return other == user ? nil : .enterpriseUserNotMatch
  }

  private func isIssuedHere(_ leaf: Certificate) -> Bool {
    leaf.version == .v3 && leaf.issuer == authority.subject
      && authority.publicKey.isValidSignature(leaf.signature, for: leaf)
  }

  private func isValid(_ leaf: Certificate, at time: Date) -> Bool {
    leaf.notValidBefore <= time && time <= leaf.notValidAfter
  }

  private func isLeafForBothSides(_ leaf: Certificate) -> Bool {
    // What is critical and not understood forbids use: RFC 5280, 4.2.
    guard leaf.extensions.allSatisfy({ !$0.critical || Self.understood.contains($0.oid) }) else {
      return false
    }
    guard let usages = try? leaf.extensions.extendedKeyUsage, usages.contains(.clientAuth),
      usages.contains(.serverAuth)
    else { return false }
    do {
      guard let constraints = try leaf.extensions.basicConstraints else { return true }
      return constraints == .notCertificateAuthority
    } catch {
      return false
    }
  }

  private static let understood: Set<ASN1ObjectIdentifier> = [
    .X509ExtensionID.basicConstraints, .X509ExtensionID.keyUsage, .X509ExtensionID.extendedKeyUsage,
    .X509ExtensionID.subjectAlternativeName,
  ]

  private static func isUser(_ name: GeneralName) -> Bool {
    guard case .uniformResourceIdentifier(let text) = name else { return false }
    return text.hasPrefix("urn:opendynamics:user:")
  }
}
