/// Why a key or a certificate that this side keeps, or is asked to certify, cannot be used.
package enum IdentityError: Error, Hashable, Sendable, CustomStringConvertible {
  case privateKeyUnreadable
  case publicKeyUnreadable
  case certificateUnreadable
  case keyOfAnotherCertificate

  package var description: String {
    switch self {
    case .privateKeyUnreadable:
      "the private key is not 32 bytes of a P-256 key; restore it, or make a new one and enrol again"
    case .publicKeyUnreadable:
      "the public key is not one on P-256 as DER SubjectPublicKeyInfo; send one that is"
    case .certificateUnreadable:
      "the certificate is not X.509 in DER; restore it, or ask the broker for a new one"
    case .keyOfAnotherCertificate:
      "the certificate is for another key than the one that is kept with it; restore the two together"
    }
  }
}
