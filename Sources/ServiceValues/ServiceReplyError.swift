/// The error that a provider's app replied with. Code, text and details are that app's own data and cross unchanged.
public struct ServiceReplyError: Error, Sendable, Hashable {
  /// The service's id, whatever the provider's app wrote; nil before it was sent.
  public var domain: ServiceIdentifier?
  /// The number of the error, as the service's definition has it.
  public var code: Int64
  /// A message of the provider's app; at most ``textByteCountMax`` bytes of UTF-8 are sent.
  public var text: String
  /// Further data of the provider's app, of which the limits are those of params.
  public var details: [String: ServiceValue]
  /// Files that come with it. Before it is sent: files and folders of the provider's container, absolute paths; afterwards paths in the inbox
  /// of the consumer's container.
  public var attachments: [String]

  /// Makes an error to reply with. Nothing is checked before it is sent;
  /// ``validate(limits:textByteCountMax:)`` checks it.
  public init(
    domain: ServiceIdentifier? = nil, code: Int64, text: String = "", details: [String: ServiceValue] = [:],
    attachments: [String] = []
  ) {
    self.domain = domain
    self.code = code
    self.text = text
    self.details = details
    self.attachments = attachments
  }

  /// An error of the provider's runtime, in the place of a reply of its app: a handler threw it, or what it returned could not be sent. The code is
  /// one of ``runtimeCodes``, which no definition uses.
  public init(_ error: ServicesError.Code, text: String = "") {
    self.init(code: Self.runtimeCodes.upperBound + 1 - Int64(error.rawValue), text: text)
  }

  /// The codes of errors of the runtime: −1,000,000 less the number that the error has in CHANNEL-PROTOCOL.md, which is 1 to 99.
  public static let runtimeCodes: ClosedRange<Int64> = -1_000_099 ... -1_000_001

  /// The error of the provider's runtime that this one is; nil for an error of its app.
  public var runtimeError: ServicesError.Code? {
    guard Self.runtimeCodes.contains(code) else { return nil }
    return ServicesError.Code(rawValue: Int32(Self.runtimeCodes.upperBound + 1 - code))
  }

  /// The longest ``text``, in bytes of UTF-8.
  public static let textByteCountMax = 4096

  /// Checks the length of the text, and the details as params are checked. Throws `invalidParams` with the path of what is wrong.
  public func validate(
    limits: ServiceValue.Limits = .default, textByteCountMax: Int = Self.textByteCountMax
  ) throws(ServicesError) {
    if text.utf8.count > textByteCountMax {
      throw ServicesError(.invalidParams, path: "error.text", detail: "more than \(textByteCountMax) bytes")
    }
    try ServiceValue.object(details).validate(limits: limits, root: "error.details")
  }
}

/// Without the text, the details and the paths, which are the app's data.
extension ServiceReplyError: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  /// The domain and the code. The text, the details and the paths are the app's data and left out.
  public var description: String {
    let provider = domain?.description ?? "the provider"
    if let runtimeError { return "\(provider) could not reply: \(runtimeError.name)" }
    return "\(provider) replied with error \(code); see the service's definition for what it means"
  }

  /// The same as ``description``.
  public var debugDescription: String { description }
  /// A mirror without children, so that `dump` prints no data of the app.
  public var customMirror: Mirror { Mirror(self, children: []) }
}
