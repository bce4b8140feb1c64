import Testing

@testable import ServiceWire

struct BulkFrameTests {
  /// Each header, and its bytes as the protocol's page has them.
  static let headers: [(BulkFrame.Header, [UInt8])] = [
    (
      .stream(0x0102_0304, block: 0x2_0105, contents: 0x10_0A40, isInSlot: false),
      [4, 3, 2, 1, 5, 1, 2, 0, 0x40, 0x0A, 0x10, 0]
    ),
    (.stream(1, block: 29, contents: 7, isInSlot: true), [1, 0, 0, 0, 29, 0, 0, 0, 7, 0, 0, 0x80]),
    (.memory(slotCount: 4), [0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]),
    (.memory(slotCount: 0x8000_0001), [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x80]),
    (.slotsRead(0x0201), [0, 0, 0, 0, 2, 0, 0, 0, 1, 2, 0, 0]),
    (.unknown(0), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (.unknown(3), [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
  ]

  @Test(arguments: headers) func hasTheBytesOfTheProtocol(header: BulkFrame.Header, bytes: [UInt8]) {
    #expect(header.bytes == bytes)
    #expect(bytes.withUnsafeBytes { BulkFrame.Header($0) } == header)
    // Wherever it lies in a buffer, and whatever follows.
    #expect(([9] + bytes + [9]).withUnsafeBytes { BulkFrame.Header(.init(rebasing: $0[1...])) } == header)
  }

  /// The numbers of the protocol's page: 64 full stored segments, and a block with as many runs and
  /// keys as there may be.
  @Test func hasTheLengthsOfTheProtocol() {
    #expect(BulkFrame.contentsByteCountMax == 1_051_200)
    #expect(BulkFrame.blockByteCountMax == 12 + 256 * 52)
    #expect(BulkSlots.byteCount == 1_052_672 && BulkSlots.byteCount % 4096 == 0)
  }
}
