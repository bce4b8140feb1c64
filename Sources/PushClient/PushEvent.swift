public import Foundation
internal import PushWire

/// What an app is told of a channel, in order.
public enum PushEvent: Sendable, Equatable {
  /// The channel is open. The app gives the token to its server, together with `host` if there is one: the
  /// server then sends to that host. With `keys` it can send what the relay cannot read.
  case opened(token: String, host: String?, keys: PushPublicKeys)
  case message(PushMessageEvent)
  /// The relay could not ask the server whether it knows the token. With ``PingFailure/unknownToken`` the app
  /// gives the server the token again.
  case pingFailed(PingFailure)
  /// The app has disconnected the channel. Its token is dead.
  case closed(token: String)
  /// The channel has ended, and its token is dead; or a call did not fit the channel's state (code 0), and
  /// nothing has changed. Codes: 0; 500 to 599, from the relay.
  case error(code: Int)
}

/// Why a ping of the app's server failed. The raw values are the documented ones.
public enum PingFailure: Int, Sendable, CaseIterable {
  case unresolvedHost = 600
  case noConnection = 601
  case invalidCertificate = 602
  case timeout = 603
  case invalidResponse = 604
  /// The server does not know the token.
  case unknownToken = 605
}

/// A message of the app's server.
public struct PushMessageEvent: Sendable, Equatable {
  public enum Urgency: Sendable { case veryLow, low, normal, high }

  /// Names a message: no other message has it, and it is the same when the message is shown again.
  public struct ID: Sendable, Hashable, CustomStringConvertible {
    let channel: ChannelID
    let sequence: UInt64

    public var description: String { "\(channel)-\(sequence)" }
  }

  public let id: ID
  /// The body; may be empty.
  public let data: Data
  public let urgency: Urgency
  public let topic: String?
  /// When the relay accepted it.
  public let accepted: Date
  /// The relay could not read it.
  public let isEncrypted: Bool

  /// The body as text. Nil if it is no UTF-8, which only an encrypted one can be.
  public var text: String? { String(validating: data, as: UTF8.self) }

  init(_ message: PushMessage, data: Data, id: ID) {
    self.id = id
    self.data = data
    urgency =
      switch message.urgency {
      case .veryLow: .veryLow
      case .low: .low
      case .normal: .normal
      case .high: .high
      }
    topic = message.topic
    accepted = Date(timeIntervalSince1970: Double(message.accepted) / 1000)
    isEncrypted = message.encoding == .aes128gcm
  }
}
