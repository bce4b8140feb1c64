public import Foundation

extension ServiceRequest {
  /// Hands one file over (`com.good.gdservice.transfer-file`): answered without a value when the receiver took it.
  public static func transferFile(
    _ path: String, foreground: ForegroundPreference = .none
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.transferFile.definition, "transferFile", attachments: [path], foreground: foreground)
  }

  /// Has another app edit a file (`com.good.gdservice.edit-file`). It sends the result back as ``saveEdit(_:identificationData:foreground:)``, with the same
  /// identification data, which is for the sender alone.
  public static func editFile(
    _ path: String, identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.editFile.definition, "editFile", params: identification(identificationData),
      attachments: [path], foreground: foreground)
  }

  /// Gives an edited file back to the app that sent it for editing (`com.good.gdservice.save-edited-file`).
  public static func saveEdit(
    _ path: String, identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.saveEditedFile.definition, "saveEdit", params: identification(identificationData),
      attachments: [path], foreground: foreground)
  }

  /// Tells the app that sent a file for editing that nothing more will come of it.
  public static func releaseEdit(
    identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.saveEditedFile.definition, "releaseEdit", params: identification(identificationData),
      foreground: foreground)
  }

  private static func identification(_ data: Data?) -> ServiceValue? {
    data.map { .object(["identificationData": ServiceValue($0)]) }
  }

  /// Has a mail app prepare a message (`com.good.gfeservice.send-email`). `attachments` are files of the sender's container.
  public static func sendEmail(
    _ email: Email, attachments: [String] = [], foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.sendEmail.definition, "sendEmail", params: email.params, attachments: attachments,
      foreground: foreground)
  }

  /// Has a browser open a page (`com.good.gdservice.open-url.http`).
  public static func openURL(
    _ url: URL, isFullScreen: Bool? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    var params: [String: ServiceValue] = ["url": .string(url.absoluteString)]
    if let isFullScreen { params["fullscreen"] = .boolean(isFullScreen) }
    return ServiceRequest(
      WellKnownService.openURL.definition, "open", params: .object(params), foreground: foreground)
  }
}

/// The params of `sendEmail`.
public struct Email: Sendable, Hashable {
  public var to: [String]
  public var cc: [String]
  public var bcc: [String]
  public var subject: String?
  public var body: String?

  public init(
    to: [String] = [], cc: [String] = [], bcc: [String] = [], subject: String? = nil, body: String? = nil
  ) {
    self.to = to
    self.cc = cc
    self.bcc = bcc
    self.subject = subject
    self.body = body
  }

  /// From the params of a request that came. Members that are missing are empty; throws `invalidParams` with the path of what has another kind.
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
