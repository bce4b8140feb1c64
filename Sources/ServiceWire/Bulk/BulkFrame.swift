/// The frames of a bulk lane (SERVICE-PROTOCOL.md, "The bulk lane"): stream number ‖ length ‖ body.
///
/// A stream's first body is the header of its secretstream, every other one a message of it.
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

  /// Writes stream number and length to the first eight bytes.
  package static func writeHeader(
    stream: UInt32, length: Int, to buffer: UnsafeMutableRawBufferPointer
  ) {
    buffer.storeBytes(of: stream.littleEndian, toByteOffset: 0, as: UInt32.self)
    buffer.storeBytes(of: UInt32(length).littleEndian, toByteOffset: 4, as: UInt32.self)
  }

  /// Reads the first eight bytes.
  package static func readHeader(_ buffer: UnsafeRawBufferPointer) -> (stream: UInt32, length: UInt32) {
    (
      UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 0, as: UInt32.self)),
      UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
    )
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
