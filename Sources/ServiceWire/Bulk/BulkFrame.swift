/// The frames of a bulk lane (SERVICE-PROTOCOL.md, "The bulk lane"): stream number ‖ length ‖ body.
///
/// A stream's first body is its header, every other one a message, sealed in one secretstream.
package enum BulkFrame {
  /// Stream number and length.
  package static let headerByteCount = 8
  /// Of the body of a stream's first frame.
  package static let streamHeaderByteCount = 24
  /// The plaintext of every message but a stream's last.
  package static let messageByteCountMax = 65_536
  /// What a message is longer than its plaintext.
  package static let overheadByteCount = 17
  /// Header and body of the longest frame.
  package static let byteCountMax = headerByteCount + messageByteCountMax + overheadByteCount
  package static let keyByteCount = 32
  /// The number in frames that are the lane's own: of 4 bytes, the count of slots of the memory whose descriptor comes along; of 8 bytes,
  /// the count of slots that were read.
  package static let laneNumber: UInt32 = 0
  package static let memoryByteCount = 4
  package static let freedByteCount = 8
  /// Set in the length: the body is in the next slot.
  package static let isInSlot: UInt32 = 1 << 31

  /// What a frame begins with.
  package struct Header: Equatable, Sendable {
    package var stream: UInt32
    package var length: UInt32
    package var isInSlot: Bool

    package init(stream: UInt32, length: UInt32, isInSlot: Bool = false) {
      (self.stream, self.length, self.isInSlot) = (stream, length, isInSlot)
    }
  }

  /// Writes stream number and length to the first eight bytes.
  package static func writeHeader(
    stream: UInt32, length: Int, isInSlot: Bool = false, to buffer: UnsafeMutableRawBufferPointer
  ) {
    let length = UInt32(length) | (isInSlot ? Self.isInSlot : 0)
    buffer.storeBytes(of: stream.littleEndian, toByteOffset: 0, as: UInt32.self)
    buffer.storeBytes(of: length.littleEndian, toByteOffset: 4, as: UInt32.self)
  }

  /// Reads the first eight bytes.
  package static func readHeader(_ buffer: UnsafeRawBufferPointer) -> Header {
    let length = UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
    return Header(
      stream: UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 0, as: UInt32.self)),
      length: length & ~Self.isInSlot, isInSlot: length & Self.isInSlot != 0)
  }
}

extension BulkFrame {
  /// The frame that comes with the descriptor of memory.
  package static func memory(slotCount: Int) -> [UInt8] {
    ofLane(withUnsafeBytes(of: UInt32(slotCount).littleEndian) { [UInt8]($0) })
  }

  package static func readMemory(_ body: UnsafeRawBufferPointer) -> UInt32 {
    UInt32(littleEndian: body.loadUnaligned(as: UInt32.self))
  }

  /// The frame that says how many slots were read, in all.
  package static func freed(_ total: UInt64) -> [UInt8] {
    ofLane(withUnsafeBytes(of: total.littleEndian) { [UInt8]($0) })
  }

  package static func readFreed(_ body: UnsafeRawBufferPointer) -> UInt64 {
    UInt64(littleEndian: body.loadUnaligned(as: UInt64.self))
  }

  private static func ofLane(_ body: [UInt8]) -> [UInt8] {
    var header = [UInt8](repeating: 0, count: headerByteCount)
    header.withUnsafeMutableBytes { writeHeader(stream: laneNumber, length: body.count, to: $0) }
    return header + body
  }
}

/// Why a bulk lane has to be closed.
package struct BulkFault: Error, Equatable, Sendable {
  package var fault: ProtocolFault
  /// For a log; it has numbers only.
  package var detail: String

  package init(_ fault: ProtocolFault, _ detail: String) {
    self.fault = fault
    self.detail = detail
  }
}
