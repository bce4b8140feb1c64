/// Names an app, and is its address: reverse DNS, as `com.example.Notes`.
public struct ApplicationID: Hashable, Sendable, CustomStringConvertible {
  /// The id as it was given; capitals are kept.
  public let text: String

  /// Checks a text. Throws `invalidParams` with the rule that it breaks; the rules are those of ``ServiceIdentifier``, but
  /// capital letters are allowed, since bundle identifiers have them. Ids are compared byte by byte; of two that differ in capitals alone a broker
  /// takes one.
  public init(_ text: String) throws(ServicesError) {
    if let fault = ReverseDNSName.fault(in: text, takesCapitals: true) {
      throw ServicesError(.invalidParams, path: "application id", detail: fault)
    }
    self.text = text
  }

  private init(checked text: String) { self.text = text }

  /// The launcher that shows the user all apps. A broker takes this id with an approved key alone.
  public static let launcher = ApplicationID(checked: "opendynamics.launcher")

  /// The same as ``text``.
  public var description: String { text }
}
