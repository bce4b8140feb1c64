/// The params of `sendEmail`.
public struct Email: Sendable, Hashable {
  /// The addresses of the recipients, which are not checked.
  public var to: [String]
  /// The addresses of the recipients of copies.
  public var cc: [String]
  /// The addresses of the recipients that others do not see.
  public var bcc: [String]
  /// The subject; nil: none is proposed.
  public var subject: String?
  /// The text of the message; nil: none is proposed.
  public var body: String?

  /// Makes a message. Every part may be missing.
  public init(
    to: [String] = [], cc: [String] = [], bcc: [String] = [], subject: String? = nil, body: String? = nil
  ) {
    self.to = to
    self.cc = cc
    self.bcc = bcc
    self.subject = subject
    self.body = body
  }

  /// From the params of a request that came. Members that are missing are empty; throws
  /// `invalidParams` with the path of what has another kind.
  public init(_ params: ServiceValue?) throws(ServicesError) {
    self.init()
    guard let params, params != .null else { return }
    guard case .object(let members) = params else {
      throw ServicesError(.invalidParams, path: "params", detail: "expected object")
    }
    func text(_ name: String) throws(ServicesError) -> String? {
      guard let value = members[name] else { return nil }
      guard case .string(let text) = value else {
        throw ServicesError(.invalidParams, path: "params.\(name)", detail: "expected string")
      }
      return text
    }
    func texts(_ name: String) throws(ServicesError) -> [String] {
      guard let value = members[name] else { return [] }
      guard case .array(let elements) = value else {
        throw ServicesError(.invalidParams, path: "params.\(name)", detail: "expected array")
      }
      var texts: [String] = []
      for (i, element) in elements.enumerated() {
        guard case .string(let text) = element else {
          throw ServicesError(.invalidParams, path: "params.\(name)[\(i)]", detail: "expected string")
        }
        texts.append(text)
      }
      return texts
    }
    (to, cc, bcc) = (try texts("to"), try texts("cc"), try texts("bcc"))
    (subject, body) = (try text("subject"), try text("body"))
  }

  var params: ServiceValue {
    var members: [String: ServiceValue] = [:]
    for (name, texts) in [("to", to), ("cc", cc), ("bcc", bcc)] where !texts.isEmpty {
      members[name] = .array(texts.map { .string($0) })
    }
    if let subject { members["subject"] = .string(subject) }
    if let body { members["body"] = .string(body) }
    return .object(members)
  }
}
