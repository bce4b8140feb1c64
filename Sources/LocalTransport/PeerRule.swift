import Crypto
package import Foundation
import ServiceWire
import X509

/// Which certificate a lane takes of its peer. That the peer has the key of it, TLS proves.
package enum PeerRule: Sendable {
  /// A channel: the leaf of that app and user, issued by the authority (DER). See `PeerCheck`.
  case leaf(authority: Data, appID: String, activationUser: String)
  /// The broker that is pinned: this certificate (DER), byte for byte; any other ends the lane with `brokerNotTrusted`.
  case certificate(Data)
  /// The broker, before one is pinned: any certificate. The owner pins `peerCertificate`.
  case firstUse
  /// An app, as the broker sees it: any certificate with a key on P-256. Any other ends the lane with `certificateNotFound`.
  case anyKey

  /// What is wrong with a certificate that a peer shows, or nil. Throws `certificateUnreadable` for an authority that cannot be used.
  func check() throws(IdentityError) -> @Sendable (PeerIdentity) -> ProtocolFault? {
    switch self {
    case .leaf(let authority, let appID, let activationUser):
      let check = try PeerCheck(authority: authority, appID: appID, activationUser: activationUser)
      return { check.fault(of: $0.certificate, at: Date()) }
    case .certificate(let pinned): return { $0.certificate == pinned ? nil : .brokerNotTrusted }
    case .firstUse: return { _ in nil }
    case .anyKey: return { $0.publicKey == nil ? .certificateNotFound : nil }
    }
  }
}

/// What a peer showed in the handshake.
struct PeerIdentity: Sendable {
  /// DER.
  let certificate: Data
  /// DER SubjectPublicKeyInfo, always of one form; nil when the key is not on P-256.
  let publicKey: Data?

  init(certificate: Data) {
    self.certificate = certificate
    publicKey =
      (try? Certificate.read(certificate)).flatMap { P256.Signing.PublicKey($0.publicKey) }?
      .derRepresentation
  }
}
