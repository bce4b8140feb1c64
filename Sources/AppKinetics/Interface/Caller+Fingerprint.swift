public import ServiceValues
import ServiceWire

extension Caller {
  /// An app with this key: hexadecimal digits, as ``AppServices/keyFingerprint`` has them. Blanks and capitals do not count. Throws
  /// `invalidParams` for what is no whole fingerprint.
  public init(_ application: ApplicationID? = nil, fingerprint: String) throws(ServicesError) {
    guard let bytes = KeyFingerprint.bytes(fingerprint) else {
      throw ServicesError(.invalidParams, path: "fingerprint", detail: "not 32 hexadecimal digits")
    }
    self.init(application: application, fingerprint: bytes)
  }
}
