import X509

/// How a certificate names an app and its activation user: as URNs among the subject's alternative names
/// (SERVICE-PROTOCOL.md, "Beginning: who is this").
enum CertifiedName {
  static func app(_ appID: String) -> GeneralName { urn("app", appID) }

  static func user(_ activationUser: String) -> GeneralName { urn("user", activationUser) }

  private static func urn(_ kind: String, _ text: String) -> GeneralName {
    .uniformResourceIdentifier("urn:opendynamics:\(kind):\(percentEncoded(text))")
  }

  /// Everything but letters, digits and `-._~` of ASCII as `%` and two upper-case digits for each byte of UTF-8. There is one encoding of
  /// each text, so names are compared as they are encoded: texts that only look alike differ.
  static func percentEncoded(_ text: String) -> String {
    text.utf8.map { byte in
      switch UnicodeScalar(byte) {
      case "a"..."z", "A"..."Z", "0"..."9", "-", ".", "_", "~": return String(UnicodeScalar(byte))
      default:
        let digits = String(byte, radix: 16, uppercase: true)
        return "%" + (digits.count == 1 ? "0" : "") + digits
      }
    }.joined()
  }
}
