package import Foundation

/// Cuts a stream of bytes into frames: a length of 32 bits, little-endian, and that many bytes.
///
/// Takes no memory for a length that it has not checked. After a fault the stream has no more frames.
package struct FrameDecoder: Sendable {
  private let byteCountMax: Int
  private var buffer: [UInt8] = []
  private var begin = 0
  private var fault: ProtocolFault?

  package static let lengthByteCount = 4
  /// How much memory is kept for the next frames, when what it held has been taken.
  private static let keptByteCountMax = 1 << 16

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

  /// The same, for the path that all messages take.
  package mutating func append(_ bytes: UnsafeRawBufferPointer) {
    if fault == nil { buffer.append(contentsOf: bytes) }
  }

  /// The next whole frame, or nil until more has come. Throws `frameTooLong`.
  package mutating func next() throws(ProtocolFault) -> Data? {
    if let fault { throw fault }
    let have = buffer.count - begin
    guard have >= Self.lengthByteCount else { return nil }
    let length = buffer.withUnsafeBytes {
      Int(UInt32(littleEndian: $0.loadUnaligned(fromByteOffset: begin, as: UInt32.self)))
    }
    guard (1...byteCountMax).contains(length) else {
      fault = .frameTooLong
      buffer = []
      begin = 0
      throw .frameTooLong
    }
    guard have >= Self.lengthByteCount + length else {
      // Growing by doubling, an array would hold twice a long frame. What no byte has come for yet takes no memory.
      if length > Self.keptByteCountMax { buffer.reserveCapacity(begin + Self.lengthByteCount + length) }
      return nil
    }
    let end = begin + Self.lengthByteCount + length
    let frame = buffer.withUnsafeBytes {
      Data(UnsafeRawBufferPointer(rebasing: $0[(begin + Self.lengthByteCount)..<end]))
    }
    begin = end
    letGo()
    return frame
  }

  /// What was taken is let go of when it is more than what is left: so every byte is moved once at most.
  private mutating func letGo() {
    let rest = buffer.count - begin
    guard begin > rest else { return }
    if buffer.capacity > Self.keptByteCountMax {
      buffer = Array(buffer[begin...])
    } else {
      buffer.removeSubrange(..<begin)
    }
    begin = 0
  }

  /// The four bytes that come before a frame of so many bytes.
  package static func length(_ byteCount: Int) -> [UInt8] {
    precondition((1...Int(Int32.max)).contains(byteCount), "a frame is not empty, and has a limit")
    return (0..<lengthByteCount).map { UInt8(truncatingIfNeeded: byteCount >> (8 * $0)) }
  }
}
