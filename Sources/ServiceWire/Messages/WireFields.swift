import Foundation

extension Data {
  /// The bytes of a frame, for code that throws `ProtocolFault`: `withUnsafeBytes` knows no typed errors.
  func withFrameBytes<R>(
    _ body: (UnsafeRawBufferPointer) throws(ProtocolFault) -> R
  ) throws(ProtocolFault) -> R {
    let result: Result<R, ProtocolFault> = withUnsafeBytes { bytes in
      do throws(ProtocolFault) {
        return .success(try body(bytes))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }
}

/// The fields of an encoded message, one after another, as Protocol Buffers write them.
struct WireFields {
  private let bytes: UnsafeRawBufferPointer
  private var position = 0

  struct Field {
    let number: UInt64
    /// Of a text, of bytes or of a message; nil for a number.
    let contents: UnsafeRawBufferPointer?
  }

  init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  /// Nil behind the last one. Throws `malformed`.
  mutating func next() throws(ProtocolFault) -> Field? {
    guard position < bytes.count else { return nil }
    let tag = try varint()
    var contents: UnsafeRawBufferPointer?
    switch tag & 7 {
    case 0: _ = try varint()
    case 1: _ = try take(8)
    case 2: contents = try take(varint())
    case 5: _ = try take(4)
    default: throw .malformed  // groups are not of this version of Protocol Buffers
    }
    return Field(number: tag >> 3, contents: contents)
  }

  private mutating func varint() throws(ProtocolFault) -> UInt64 {
    var value: UInt64 = 0
    for shift in stride(from: 0, to: 64, by: 7) {
      guard position < bytes.count else { throw .malformed }
      let byte = bytes[position]
      position += 1
      value |= UInt64(byte & 0x7f) << UInt64(shift)
      if byte < 0x80 { return value }
    }
    throw .malformed
  }

  private mutating func take(_ count: UInt64) throws(ProtocolFault) -> UnsafeRawBufferPointer {
    guard count <= UInt64(bytes.count - position) else { throw .malformed }
    defer { position += Int(count) }
    return UnsafeRawBufferPointer(rebasing: bytes[position..<position + Int(count)])
  }
}
