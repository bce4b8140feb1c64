package import Foundation
package import SwiftProtobuf

/// A message that is a frame of its own.
package protocol WireMessage: SwiftProtobuf.Message {
  /// Whether a kind is set that this version knows.
  var hasKind: Bool { get }

  // These two have one body for all types. They are named here because the compiler then makes one of each for each type, which takes
  // half the time.

  /// Reads a frame. Returns nil for one that may be ignored: nothing but fields from 1000 on. Throws `malformed`.
  static func read(_ frame: Data) throws(ProtocolFault) -> Self?

  /// Appends the message as a frame, its length before it. Throws `malformed` when it cannot be encoded, `frameTooLong` when it is longer
  /// than `byteCountMax`; then nothing is appended.
  func appendFrame(to bytes: inout [UInt8], byteCountMax: Int) throws(ProtocolFault)
}

extension WireBrokerMessage: WireMessage {
  package var hasKind: Bool { kind != nil }
}

extension WireChannelMessage: WireMessage {
  package var hasKind: Bool { kind != nil }
}

extension WireMessage {
  private static var options: BinaryDecodingOptions {
    var options = BinaryDecodingOptions()
    // Values nest 32 deep, an object's member is three messages deep.
    options.messageDepthLimit = 128
    // What this version does not know takes no room, and is not passed on.
    options.discardUnknownFields = true
    return options
  }

  package static func read(_ frame: Data) throws(ProtocolFault) -> Self? {
    let message: Self
    do {
      message = try Self(serializedBytes: frame, options: options)
    } catch {
      throw .malformed
    }
    if message.hasKind { return message }
    guard try fieldNumbers(frame).allSatisfy({ $0 >= 1000 }) else { throw .malformed }
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

/// The numbers of the fields of a message.
private func fieldNumbers(_ data: Data) throws(ProtocolFault) -> [UInt64] {
  var numbers: [UInt64] = []
  var rest = data[...]
  func varint() throws(ProtocolFault) -> UInt64 {
    var value: UInt64 = 0
    for shift in stride(from: 0, to: 64, by: 7) {
      guard let byte = rest.popFirst() else { throw .malformed }
      value |= UInt64(byte & 0x7f) << UInt64(shift)
      if byte < 0x80 { return value }
    }
    throw .malformed
  }
  func skip(_ count: UInt64) throws(ProtocolFault) {
    guard count <= UInt64(rest.count) else { throw .malformed }
    rest.removeFirst(Int(count))
  }
  while !rest.isEmpty {
    let tag = try varint()
    numbers.append(tag >> 3)
    switch tag & 7 {
    case 0: _ = try varint()
    case 1: try skip(8)
    case 2: try skip(varint())
    case 5: try skip(4)
    default: throw .malformed  // groups are not of this version of Protocol Buffers
    }
  }
  guard !numbers.isEmpty else { throw .malformed }
  return numbers
}
