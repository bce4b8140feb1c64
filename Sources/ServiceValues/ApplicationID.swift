/// Names an app, and is its address: lower-case reverse DNS, as `com.example.notes`.
public struct ApplicationID: Hashable, Sendable, CustomStringConvertible {
  public let text: String

  /// Throws `invalidParams` that says which rule the text breaks; the rules are those of ``ServiceIdentifier``. Capital letters
  /// are refused and not lowered, so that no two apps have ids that differ in them only.
  public init(_ text: String) throws(ServicesError) {
    if let fault = ReverseDNSName.fault(in: text) {
      throw ServicesError(.invalidParams, path: "application id", detail: fault)
    }
    self.text = text
  }

  public var description: String { text }
}
