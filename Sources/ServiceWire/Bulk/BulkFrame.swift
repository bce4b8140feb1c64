/// The frames of a bulk lane (DELIVERY-PROTOCOL.md, "The bulk lane"): header ‖ block ‖ contents.
///
/// The block is sealed in the secretstream of the frame's stream. The contents are opaque to the
/// lane.
package enum BulkFrame {
  /// The stream's number and both lengths.
  package static let headerByteCount = 12
  /// The contents of a frame: 64 full stored segments.
  package static let contentsByteCountMax = 1_051_200
  /// The plaintext of a block.
  package static let blockByteCountMin = 12
  package static let blockByteCountMax = 13_324
  /// The bytes that sealing adds to a block.
  package static let overheadByteCount = 17
  /// The stream's header, which stands in front of its first sealed block.
  package static let streamHeaderByteCount = 24
  package static let keyByteCount = 32
  /// The number in frames of the lane itself.
  package static let laneNumber: UInt32 = 0

  /// The first 12 bytes of a frame.
  package enum Header: Equatable, Sendable {
    /// A frame of a stream. `block` counts the sealed block, and the stream's header in front of
    /// the first.
    case stream(UInt32, block: UInt32, contents: UInt32, isInSlot: Bool)
    /// A frame of the lane: the descriptor that comes along is memory of so many slots.
    case memory(slotCount: UInt32)
    /// A frame of the lane: so many more slots were read.
    case slotsRead(UInt32)
    /// A frame of the lane of another kind.
    case unknown(UInt32)
  }

  private static let memoryKind: UInt32 = 1
  private static let slotsReadKind: UInt32 = 2
  /// Set in the length of the contents when they are in a slot.
  private static let isInSlot: UInt32 = 1 << 31
}

extension BulkFrame.Header {
  /// Parses the first 12 bytes of the buffer.
  package init(_ buffer: UnsafeRawBufferPointer) {
    func word(_ index: Int) -> UInt32 {
      UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 4 * index, as: UInt32.self))
    }
    let (number, second, third) = (word(0), word(1), word(2))
    guard number == BulkFrame.laneNumber else {
      self = .stream(
        number, block: second, contents: third & ~BulkFrame.isInSlot,
        isInSlot: third & BulkFrame.isInSlot != 0)
      return
    }
    switch second {
    case BulkFrame.memoryKind: self = .memory(slotCount: third)
    case BulkFrame.slotsReadKind: self = .slotsRead(third)
    default: self = .unknown(second)
    }
  }

  /// The 12 bytes, three words in little-endian order.
  package var bytes: [UInt8] {
    let words: [UInt32] =
      switch self {
      case .stream(let number, let block, let contents, let isInSlot):
        [number, block, contents | (isInSlot ? BulkFrame.isInSlot : 0)]
      case .memory(let slotCount): [BulkFrame.laneNumber, BulkFrame.memoryKind, slotCount]
      case .slotsRead(let count): [BulkFrame.laneNumber, BulkFrame.slotsReadKind, count]
      case .unknown(let kind): [BulkFrame.laneNumber, kind, 0]
      }
    return words.flatMap { word in withUnsafeBytes(of: word.littleEndian) { Array($0) } }
  }
}

/// The reason why a bulk lane has to be closed.
package struct BulkFault: Error, Equatable, Sendable {
  package var fault: ProtocolFault
  /// A text for a log; it has numbers only.
  package var detail: String

  package init(_ fault: ProtocolFault, _ detail: String) {
    self.fault = fault
    self.detail = detail
  }
}
