package import Foundation
internal import SwiftProtobuf

/// Bytes that are no message of the protocol. The connection closes with code 1007.
package struct MalformedFrame: Error, Equatable {
  /// What is wrong, for the log; it contains nothing of the bytes.
  package let reason: String
}

/// Largest messages of a connection, in bytes. Source: PUSH-PROTOCOL.md, *Limits*.
package enum FrameLimits {
  package static let body = 1 << 20
  package static let deviceMessage = 4096
  package static let relayMessage = body + 4096
}

/// A message from the device. Every value is in the range of the page.
package enum DeviceFrame: Equatable, Sendable {
  case hello(Hello)
  case open(ChannelID, isKnown: Bool, taken: UInt64)
  case close(ChannelID)
  case taken(ChannelID, through: UInt64)

  package struct Hello: Equatable, Sendable {
    package static let secretByteCount = 32
    package static let admissionKeyByteCountMax = 256
    package static let heartbeatSeconds: ClosedRange<UInt32> = 10...3600

    /// The peer's version of the protocol. With another than 1 the other values mean nothing.
    package var version: UInt32
    package var deviceSecret: Data
    package var admissionKey: Data
    package var heartbeatSeconds: UInt32

    package init(
      version: UInt32 = 1, deviceSecret: Data, admissionKey: Data = Data(), heartbeatSeconds: UInt32
    ) {
      self.version = version
      self.deviceSecret = deviceSecret
      self.admissionKey = admissionKey
      self.heartbeatSeconds = heartbeatSeconds
    }
  }
}

/// A message from the relay. Every value is in the range of the page.
package enum RelayFrame: Equatable, Sendable {
  case welcome(heartbeatSeconds: UInt32, channelsMax: UInt32)
  case opened(ChannelID, token: String, host: String?)
  case failed(ChannelID, code: UInt32)
  case event(ChannelID, sequence: UInt64, ChannelEvent)
  case goodbye(GoodbyeReason, retryAfterSeconds: UInt32)
}

/// What the app is shown of an open channel.
package enum ChannelEvent: Equatable, Sendable {
  case message(PushMessage)
  /// A code of ``pingCodes``.
  case pingFailed(UInt32)
  case closed
  /// A code of ``errorCodes``.
  case error(UInt32)

  package static let pingCodes: ClosedRange<UInt32> = 600...605
  package static let errorCodes: ClosedRange<UInt32> = 500...599

  /// No event of the channel follows this one.
  package var isLast: Bool {
    switch self {
    case .message, .pingFailed: false
    case .closed, .error: true
    }
  }

  /// Bytes of the body: what the event counts for in windows and queues.
  package var byteCount: Int {
    switch self {
    case .message(let message): message.body.count
    case .pingFailed, .closed, .error: 0
    }
  }
}

package struct PushMessage: Equatable, Sendable {
  package enum Encoding: Sendable { case text, aes128gcm }
  package enum Urgency: Sendable { case veryLow, low, normal, high }

  package static let topicByteCountMax = 32

  package var body: Data
  package var encoding: Encoding
  package var urgency: Urgency
  /// Nil or 1 to 32 digits of base64url.
  package var topic: String?
  /// When the relay accepted it, in milliseconds since 1970, UTC.
  package var accepted: UInt64

  package init(
    body: Data, encoding: Encoding = .text, urgency: Urgency = .normal, topic: String? = nil, accepted: UInt64
  ) {
    self.body = body
    self.encoding = encoding
    self.urgency = urgency
    self.topic = topic
    self.accepted = accepted
  }

  package static func isTopic(_ text: String) -> Bool {
    (1...topicByteCountMax).contains(text.utf8.count)
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"): true
        default: false
        }
      }
  }
}

/// Why the relay ends a connection.
package enum GoodbyeReason: Sendable, CaseIterable {
  case malformed, version, notAdmitted, replaced, slow, silent, full, draining, failed
}

// MARK: - Bytes

extension DeviceFrame {
  package init(bytes: Data) throws(MalformedFrame) {
    switch try decode(WireDeviceMessage.self, bytes, maximum: FrameLimits.deviceMessage).kind {
    case .hello(let hello): self = .hello(try Hello(hello))
    case .open(let open):
      self = .open(try channel(open.channel), isKnown: open.isKnown, taken: open.taken)
    case .close(let close): self = .close(try channel(close.channel))
    case .taken(let taken): self = .taken(try channel(taken.channel), through: taken.through)
    case nil: throw MalformedFrame(reason: "no known kind of message")
    }
  }

  package var bytes: Data {
    encode(
      WireDeviceMessage.with { message in
        switch self {
        case .hello(let hello):
          message.hello = .with {
            $0.version = hello.version
            $0.deviceSecret = hello.deviceSecret
            $0.admissionKey = hello.admissionKey
            $0.heartbeatSeconds = hello.heartbeatSeconds
          }
        case .open(let channel, let isKnown, let taken):
          message.open = .with {
            $0.channel = channel.data
            $0.isKnown = isKnown
            $0.taken = taken
          }
        case .close(let channel): message.close = .with { $0.channel = channel.data }
        case .taken(let channel, let through):
          message.taken = .with {
            $0.channel = channel.data
            $0.through = through
          }
        }
      })
  }
}

extension DeviceFrame.Hello {
  fileprivate init(_ hello: WireHello) throws(MalformedFrame) {
    self.init(
      version: hello.version, deviceSecret: hello.deviceSecret, admissionKey: hello.admissionKey,
      heartbeatSeconds: hello.heartbeatSeconds)
    // What a later version has in them is not ours to judge.
    guard version == 1 else { return }
    guard deviceSecret.count == Self.secretByteCount else {
      throw MalformedFrame(reason: "a device secret of another length")
    }
    guard admissionKey.count <= Self.admissionKeyByteCountMax else {
      throw MalformedFrame(reason: "an admission key that is too long")
    }
    guard Self.heartbeatSeconds.contains(heartbeatSeconds) else {
      throw MalformedFrame(reason: "a heartbeat out of range")
    }
  }
}

extension RelayFrame {
  package init(bytes: Data) throws(MalformedFrame) {
    switch try decode(WireRelayMessage.self, bytes, maximum: FrameLimits.relayMessage).kind {
    case .welcome(let welcome):
      guard DeviceFrame.Hello.heartbeatSeconds.contains(welcome.heartbeatSeconds) else {
        throw MalformedFrame(reason: "a heartbeat out of range")
      }
      self = .welcome(heartbeatSeconds: welcome.heartbeatSeconds, channelsMax: welcome.channelsMax)
    case .opened(let opened):
      guard opened.token.utf8.count <= PushToken.byteCountMax, PushToken(opened.token) != nil,
        opened.host.utf8.count <= 255
      else { throw MalformedFrame(reason: "no token, or a host that is too long") }
      self = .opened(
        try channel(opened.channel), token: opened.token, host: opened.host.isEmpty ? nil : opened.host)
    case .failed(let failed):
      self = .failed(try channel(failed.channel), code: try code(failed.code, in: ChannelEvent.errorCodes))
    case .event(let event):
      guard event.sequence > 0 else { throw MalformedFrame(reason: "an event without a number") }
      self = .event(try channel(event.channel), sequence: event.sequence, try ChannelEvent(event))
    case .goodbye(let goodbye):
      self = .goodbye(
        GoodbyeReason(goodbye.reason), retryAfterSeconds: min(goodbye.retryAfterSeconds, 3600))
    case nil: throw MalformedFrame(reason: "no known kind of message")
    }
  }

  package var bytes: Data {
    encode(
      WireRelayMessage.with { message in
        switch self {
        case .welcome(let heartbeatSeconds, let channelsMax):
          message.welcome = .with {
            $0.heartbeatSeconds = heartbeatSeconds
            $0.channelsMax = channelsMax
          }
        case .opened(let channel, let token, let host):
          message.opened = .with {
            $0.channel = channel.data
            $0.token = token
            $0.host = host ?? ""
          }
        case .failed(let channel, let code):
          message.failed = .with {
            $0.channel = channel.data
            $0.code = code
          }
        case .event(let channel, let sequence, let event):
          message.event = .with {
            $0.channel = channel.data
            $0.sequence = sequence
            $0.kind = event.wire
          }
        case .goodbye(let reason, let retryAfterSeconds):
          message.goodbye = .with {
            $0.reason = reason.wire
            $0.retryAfterSeconds = retryAfterSeconds
          }
        }
      })
  }
}

extension ChannelEvent {
  fileprivate init(_ event: WireEvent) throws(MalformedFrame) {
    switch event.kind {
    case .message(let message): self = .message(try PushMessage(message))
    case .pingFailed(let value): self = .pingFailed(try code(value, in: ChannelEvent.pingCodes))
    case .closed: self = .closed
    case .error(let value): self = .error(try code(value, in: ChannelEvent.errorCodes))
    case nil: throw MalformedFrame(reason: "no known kind of event")
    }
  }

  fileprivate var wire: WireEvent.OneOf_Kind {
    switch self {
    case .message(let message):
      .message(
        .with {
          $0.body = message.body
          $0.encoding = message.encoding == .text ? .text : .aes128Gcm
          $0.urgency =
            switch message.urgency {
            case .veryLow: .veryLow
            case .low: .low
            case .normal: .normal
            case .high: .high
            }
          $0.topic = message.topic ?? ""
          $0.accepted = message.accepted
        })
    case .pingFailed(let code): .pingFailed(code)
    case .closed: .closed(WireClosed())
    case .error(let code): .error(code)
    }
  }
}

extension PushMessage {
  fileprivate init(_ message: WireMessage) throws(MalformedFrame) {
    guard message.body.count <= FrameLimits.body else {
      throw MalformedFrame(reason: "a body that is too long")
    }
    guard message.topic.isEmpty || Self.isTopic(message.topic) else {
      throw MalformedFrame(reason: "no topic")
    }
    let encoding: Encoding
    switch message.encoding {
    case .text: encoding = .text
    case .aes128Gcm: encoding = .aes128gcm
    case .UNRECOGNIZED: throw MalformedFrame(reason: "an unknown encoding")
    }
    if encoding == .text, String(validating: message.body, as: UTF8.self) == nil {
      throw MalformedFrame(reason: "a text that is not UTF-8")
    }
    let urgency: Urgency =
      switch message.urgency {
      case .veryLow: .veryLow
      case .low: .low
      case .high: .high
      // One that a later relay knows changes nothing here.
      case .normal, .UNRECOGNIZED: .normal
      }
    self.init(
      body: message.body, encoding: encoding, urgency: urgency,
      topic: message.topic.isEmpty ? nil : message.topic, accepted: message.accepted)
  }
}

extension GoodbyeReason {
  fileprivate init(_ reason: WireGoodbye.Reason) {
    self = Self.allCases.first { $0.wire == reason } ?? .failed
  }

  fileprivate var wire: WireGoodbye.Reason {
    switch self {
    case .malformed: .malformed
    case .version: .version
    case .notAdmitted: .notAdmitted
    case .replaced: .replaced
    case .slow: .slow
    case .silent: .silent
    case .full: .full
    case .draining: .draining
    case .failed: .failed
    }
  }
}

private func decode<M: SwiftProtobuf.Message>(
  _ type: M.Type, _ bytes: Data, maximum: Int
) throws(MalformedFrame) -> M {
  guard bytes.count <= maximum else { throw MalformedFrame(reason: "longer than \(maximum) bytes") }
  var options = BinaryDecodingOptions()
  options.discardUnknownFields = true
  // A message, its kind, and what an event contains.
  options.messageDepthLimit = 8
  do {
    return try M(serializedBytes: bytes, options: options)
  } catch {
    throw MalformedFrame(reason: "no Protocol Buffers message of this type")
  }
}

private func encode(_ message: some SwiftProtobuf.Message) -> Data {
  // Fails for messages with required fields or extensions alone, of which there are none.
  guard let bytes: Data = try? message.serializedBytes() else {
    preconditionFailure("a message without bytes")
  }
  return bytes
}

private func channel(_ bytes: Data) throws(MalformedFrame) -> ChannelID {
  guard let id = ChannelID(exactly: bytes) else {
    throw MalformedFrame(reason: "a channel id of another length")
  }
  return id
}

private func code(_ code: UInt32, in range: ClosedRange<UInt32>) throws(MalformedFrame) -> UInt32 {
  guard range.contains(code) else { throw MalformedFrame(reason: "a code out of range") }
  return code
}
