/// Names a service: lower-case reverse DNS, as `com.good.gdservice.transfer-file`.
public struct ServiceIdentifier: Hashable, Sendable, CustomStringConvertible {
  /// The id as it was given, which is in lower case.
  public let text: String

  /// Checks a text. Throws `invalidParams` with the rule that it breaks. At least two parts with dots between them, each of 1 to 63
  /// letters a to z, digits and hyphens, no hyphen at its ends; 255 bytes at most.
  public init(_ text: String) throws(ServicesError) {
    if let fault = ReverseDNSName.fault(in: text) {
      throw ServicesError(.invalidParams, path: "service id", detail: fault)
    }
    self.text = text
  }

  /// The same as ``text``.
  public var description: String { text }
}
