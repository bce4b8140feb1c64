/// The fill level of a slab.
struct SlabCounter: Equatable, Sendable {
  /// The maximum length of a slab, in bytes.
  static let slabByteCountMax: UInt64 = 64 << 20
  var liveByteCount: UInt64 = 0
  /// The offset after the last committed byte.
  var end: UInt64 = 0

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(liveByteCount)
    writer.append(end)
    return writer.bytes
  }

  init() {}

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    liveByteCount = try reader.read()
    end = try reader.read()
    try reader.end()
    guard liveByteCount > 0, liveByteCount <= end, end <= SlabCounter.slabByteCountMax else {
      throw MalformedBytes(what: "a slab counter that cannot be")
    }
  }
}
