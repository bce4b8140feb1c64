package import Foundation
package import SwiftProtobuf

/// A message that is a frame of its own.
package protocol WireMessage: SwiftProtobuf.Message {
  /// Whether a kind is set that this version knows.
  var hasKind: Bool { get }
  /// Where its lists are.
  static var lists: WireLists { get }

  // These two have one body for all types. They are named here because the compiler then makes one of each for each type, which takes
  // half the time.

  /// Reads a frame. Returns nil for one that may be ignored: nothing but fields from 1000 on. Throws `malformed`, and `limitExceeded` when
  /// its lists have more elements than that together: then nothing of it was read.
  static func read(_ frame: Data, elementCountMax: Int) throws(ProtocolFault) -> Self?

  /// Appends the message as a frame, its length before it. Throws `malformed` when it cannot be encoded, `frameTooLong` when it is longer
  /// than `byteCountMax`; then nothing is appended.
  func appendFrame(to bytes: inout [UInt8], byteCountMax: Int) throws(ProtocolFault)
}

extension WireBrokerMessage: WireMessage {
  package var hasKind: Bool { kind != nil }
  package static var lists: WireLists { .brokerMessage }
}

extension WireChannelMessage: WireMessage {
  package var hasKind: Bool { kind != nil }
  package static var lists: WireLists { .channelMessage }
}

extension WireMessage {
  private static var options: BinaryDecodingOptions {
    var options = BinaryDecodingOptions()
    options.messageDepthLimit = WireLists.depthMax
    // What this version does not know takes no room, and is not passed on.
    options.discardUnknownFields = true
    return options
  }

  package static func read(_ frame: Data, elementCountMax: Int) throws(ProtocolFault) -> Self? {
    try lists.check(frame, elementCountMax: elementCountMax)
    let message: Self
    do {
      message = try Self(serializedBytes: frame, options: options)
    } catch {
      throw .malformed
    }
    if message.hasKind { return message }
    guard try mayBeIgnored(frame) else { throw .malformed }
    return nil
  }

  package func appendFrame(to bytes: inout [UInt8], byteCountMax: Int) throws(ProtocolFault) {
    let body: [UInt8]
    do {
      body = try serializedBytes()
    } catch {
      throw .malformed
    }
    guard (1...byteCountMax).contains(body.count) else { throw .frameTooLong }
    withUnsafeBytes(of: UInt32(body.count).littleEndian) { bytes.append(contentsOf: $0) }
    bytes.append(contentsOf: body)
  }

  /// The message as a frame, as `appendFrame` makes it.
  package func frame(byteCountMax: Int) throws(ProtocolFault) -> Data {
    var bytes: [UInt8] = []
    try appendFrame(to: &bytes, byteCountMax: byteCountMax)
    return Data(bytes)
  }
}

/// Whether all fields of a message are among those that may be ignored. A message without any is malformed.
private func mayBeIgnored(_ frame: Data) throws(ProtocolFault) -> Bool {
  try frame.withFrameBytes { bytes throws(ProtocolFault) in
    var fields = WireFields(bytes)
    guard var field = try fields.next() else { throw .malformed }
    while field.number >= 1000 {
      guard let next = try fields.next() else { return true }
      field = next
    }
    return false
  }
}
