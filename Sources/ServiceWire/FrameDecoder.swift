package import Foundation

/// Cuts a stream of bytes into frames: a length of 32 bits, little-endian, and that many bytes.
///
/// Takes no memory for a length that it has not checked. After a fault the stream has no more frames.
package struct FrameDecoder: Sendable {
  private let byteCountMax: Int
  private var buffer = Data()
  private var begin = 0
  private var fault: ProtocolFault?

  package static let lengthByteCount = 4

  package init(byteCountMax: Int) {
    precondition((1...Int(Int32.max)).contains(byteCountMax), "a frame has a limit")
    self.byteCountMax = byteCountMax
  }

  /// Whether a frame has begun and is not complete.
  package var isWithinFrame: Bool { begin < buffer.count }

  /// Bytes of the stream, in order.
  package mutating func append(_ bytes: some Sequence<UInt8>) {
    if fault == nil { buffer.append(contentsOf: bytes) }
  }

  /// The next whole frame, or nil until more has come. Throws `frameTooLong`.
  package mutating func next() throws(ProtocolFault) -> Data? {
    if let fault { throw fault }
    let have = buffer.count - begin
    guard have >= Self.lengthByteCount else { return nil }
    var length = 0
    for i in (0..<Self.lengthByteCount).reversed() {
      length = length << 8 | Int(buffer[buffer.startIndex + begin + i])
    }
    guard (1...byteCountMax).contains(length) else {
      fault = .frameTooLong
      buffer = Data()
      begin = 0
      throw .frameTooLong
    }
    guard have >= Self.lengthByteCount + length else { return nil }
    let start = buffer.startIndex + begin + Self.lengthByteCount
    let frame = Data(buffer[start..<(start + length)])
    begin += Self.lengthByteCount + length
    // What was taken is let go of when it is more than what is left: so every byte is moved once at most. A new buffer, because
    // removing from the front of a Data keeps its memory.
    if begin > buffer.count - begin {
      buffer = Data(Array(buffer.dropFirst(begin)))
      begin = 0
    }
    return frame
  }

  /// The four bytes that come before a frame of so many bytes.
  package static func length(_ byteCount: Int) -> [UInt8] {
    precondition((1...Int(Int32.max)).contains(byteCount), "a frame is not empty, and has a limit")
    return (0..<lengthByteCount).map { UInt8(truncatingIfNeeded: byteCount >> (8 * $0)) }
  }
}
