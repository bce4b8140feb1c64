package import Foundation
package import PushWire

/// The result of a request of the documented interface, in the header `X-Good-GNP-Code`.
package enum GNPCode: Int, Error, Sendable, CaseIterable {
  case ok = 100
  case unsupported = 200
  case tokenFormat = 401
  case invalidToken = 402
  case disconnected = 403
  case urlFormat = 404
  case unsupportedEncoding = 407

  package var header: String {
    switch self {
    case .ok: "100 OK"
    case .unsupported: "200 Unsupported"
    case .tokenFormat: "401 Token format error"
    case .invalidToken: "402 Invalid Token"
    case .disconnected: "403 Terminal is disconnected"
    case .urlFormat: "404 URL format not supported"
    case .unsupportedEncoding: "407 Unsupported encoding"
    }
  }
}

/// A request from a back end, as far as it matters here.
package struct BackEndRequest: Sendable {
  package var method: String
  /// Path and query, still encoded.
  package var target: String
  /// Header fields in the order of the request.
  package var headers: [(name: String, value: String)]

  package init(method: String, target: String, headers: [(name: String, value: String)]) {
    self.method = method
    self.target = target
    self.headers = headers
  }

  /// The values of a field whose name has letters and hyphens.
  package func values(of name: String) -> [String] {
    headers.filter { header in
      header.name.utf8.count == name.utf8.count
        && zip(header.name.utf8, name.utf8).allSatisfy { $0 | 0x20 == $1 | 0x20 }
    }.map(\.value)
  }
}

/// A request of the documented interface whose operation and token can be read. The relay looks the token
/// up before it reads the rest, since an invalid token is the answer that comes first.
package struct GNPRequest: Sendable {
  package enum Operation: Sendable { case checkToken, notify }

  package struct Callbacks: Equatable, Sendable {
    package static let pingMinutes = 0...10_080

    package var ping: CallbackURL?
    package var disconnect: CallbackURL?
    package var minimumPingMinutes: Int?
  }

  package static let path = "/GNP1.0"

  package let operation: Operation
  package let token: PushToken
  /// Length of the body of `notify`, as the request states it.
  package let byteCount: Int
  private let parameters: [String: String]
  private let contentTypes: [String]

  /// Throws `unsupported`, `tokenFormat` or `invalidToken`.
  package init(_ request: BackEndRequest) throws(GNPCode) {
    let parts = request.target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts[0] == Self.path, parts.count == 2, let parameters = Self.parameters(parts[1]) else {
      throw .unsupported
    }
    self.parameters = parameters
    switch (parameters["method"], request.method) {
    case ("checkToken", "GET"):
      operation = .checkToken
      byteCount = 0
    case ("notify", "POST"):
      operation = .notify
      let lengths = Set(request.values(of: "Content-Length"))
      guard lengths.count == 1, let length = lengths.first.flatMap({ Int($0) }),
        (0...FrameLimits.body).contains(length)
      else { throw .unsupported }
      byteCount = length
    default: throw .unsupported
    }
    contentTypes = request.values(of: "Content-Type")
    let tokens = request.values(of: "X-Good-GNP-Token")
    guard tokens.count == 1 else { throw .tokenFormat }
    guard !tokens[0].isEmpty else { throw .invalidToken }
    guard let token = PushToken(tokens[0]) else { throw .tokenFormat }
    self.token = token
  }

  /// The callbacks that `checkToken` names. Throws `urlFormat`.
  package func callbacks() throws(GNPCode) -> Callbacks {
    var callbacks = Callbacks()
    callbacks.ping = try url("pingURL")
    callbacks.disconnect = try url("disconnectURL")
    if let text = value("minPingInterval") {
      guard callbacks.ping != nil, text.isDecimal, let minutes = Int(text),
        Callbacks.pingMinutes.contains(minutes)
      else { throw .urlFormat }
      callbacks.minimumPingMinutes = minutes
    }
    return callbacks
  }

  /// Throws `unsupportedEncoding` for a `Content-Type` that is not plain text.
  package func checkType() throws(GNPCode) {
    guard contentTypes.count <= 1, contentTypes.allSatisfy(Self.isPlainText) else {
      throw .unsupportedEncoding
    }
  }

  /// The message that `notify` brings. Throws `unsupportedEncoding`.
  package func text(of body: Data) throws(GNPCode) -> PushMessage {
    try checkType()
    guard String(validating: body, as: UTF8.self) != nil else { throw .unsupportedEncoding }
    return PushMessage(body: body, accepted: 0)
  }

  private func value(_ name: String) -> String? {
    guard let value = parameters[name], value.contains(where: { !$0.isWhitespace }) else { return nil }
    return value
  }

  private func url(_ name: String) throws(GNPCode) -> CallbackURL? {
    guard let text = value(name) else { return nil }
    guard let url = CallbackURL(text) else { throw .urlFormat }
    return url
  }

  /// `text/plain`, alone or with the one charset that there is.
  private static func isPlainText(_ value: String) -> Bool {
    var parts = value.split(separator: ";", omittingEmptySubsequences: false).map {
      $0.trimmingCharacters(in: .whitespaces).lowercased()
    }
    guard parts.removeFirst() == "text/plain" else { return false }
    return parts.allSatisfy { parameter in
      let pair = parameter.split(separator: "=", maxSplits: 1).map(String.init)
      guard pair.first == "charset" else { return true }
      return pair.count == 2 && (pair[1] == "utf-8" || pair[1] == "\"utf-8\"")
    }
  }

  /// Percent-encoded pairs. Returns nil if a name comes twice or an encoding is broken.
  private static func parameters(_ query: Substring) -> [String: String]? {
    var parameters: [String: String] = [:]
    for pair in query.split(separator: "&") {
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard let name = String(parts[0]).removingPercentEncoding,
        let value = parts.count == 2 ? String(parts[1]).removingPercentEncoding : "",
        parameters.updateValue(value, forKey: name) == nil
      else { return nil }
    }
    return parameters
  }
}
