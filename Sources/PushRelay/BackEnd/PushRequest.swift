package import Foundation
package import PushWire

/// A request of the interface after RFC 8030: `POST /push/<secret>`.
package struct PushRequest: Sendable {
  /// What is wrong with a request, as an HTTP status and a sentence for its sender.
  package struct Refusal: Error, Equatable, Sendable {
    package let status: Int
    package let text: String
  }

  package static let pathPrefix = "/push/"
  /// The time after which a channel counts as abandoned, and its messages with it.
  package static let secondsMax: UInt64 = 604_800

  /// The last component of a token.
  package let secret: String
  package let timeToLiveSeconds: UInt64
  package let byteCount: Int
  private let encoding: PushMessage.Encoding
  private let urgency: PushMessage.Urgency
  private let topic: String?

  package init(_ request: BackEndRequest) throws(Refusal) {
    guard request.target.hasPrefix(Self.pathPrefix) else { throw Refusal(status: 404, text: "no such path") }
    guard request.method == "POST" else { throw Refusal(status: 405, text: "use POST") }
    secret = String(request.target.dropFirst(Self.pathPrefix.count))
    guard Data(base64URL: secret)?.count == PushToken.secretByteCount else {
      throw Refusal(status: 404, text: "no such token")
    }
    guard let text = try Self.single("TTL", request), text.isDecimal else {
      throw Refusal(status: 400, text: "TTL is missing or no number of seconds")
    }
    timeToLiveSeconds = min(UInt64(text) ?? .max, Self.secondsMax)
    switch try Self.single("Urgency", request)?.lowercased() {
    case "very-low": urgency = .veryLow
    case "low": urgency = .low
    case nil, "normal": urgency = .normal
    case "high": urgency = .high
    default: throw Refusal(status: 400, text: "Urgency is very-low, low, normal or high")
    }
    topic = try Self.single("Topic", request)
    if let topic, !PushMessage.isTopic(topic) {
      throw Refusal(status: 400, text: "Topic has 1 to 32 of A-Z, a-z, 0-9, - and _")
    }
    switch try Self.single("Content-Encoding", request)?.lowercased() {
    case nil, "identity": encoding = .text
    case "aes128gcm": encoding = .aes128gcm
    default: throw Refusal(status: 415, text: "Content-Encoding is aes128gcm or absent")
    }
    guard let length = try Self.single("Content-Length", request).flatMap({ Int($0) }), length >= 0 else {
      throw Refusal(status: 411, text: "Content-Length is missing")
    }
    guard length <= FrameLimits.body else {
      throw Refusal(status: 413, text: "a body has at most \(FrameLimits.body) bytes")
    }
    byteCount = length
  }

  package var hasTopic: Bool { topic != nil }

  package func message(body: Data) throws(Refusal) -> PushMessage {
    if encoding == .text, String(validating: body, as: UTF8.self) == nil {
      throw Refusal(status: 400, text: "the body is not UTF-8")
    }
    return PushMessage(body: body, encoding: encoding, urgency: urgency, topic: topic, accepted: 0)
  }

  private static func single(_ name: String, _ request: BackEndRequest) throws(Refusal) -> String? {
    let values = request.values(of: name)
    guard values.count <= 1 else { throw Refusal(status: 400, text: "\(name) comes more than once") }
    return values.first?.trimmingCharacters(in: .whitespaces)
  }
}
