import EncryptedFile

extension Extent {
  static let valueByteCount = 48
  /// Bytes of a run tag, which this release skips.
  static let tagByteCount = 16

  var encodedValue: [UInt8] {
    var writer = ByteWriter()
    writer.append(slab)
    writer.append(count)
    writer.append(offset)
    writer.append(lastLength)
    writer.append(UInt32(0))
    writer.append(writeNumber.session)
    writer.append(writeNumber.counter)
    return writer.bytes
  }

  init(start: UInt64, value reader: inout ByteReader) throws(MalformedBytes) {
    let slab = try reader.read(UInt32.self)
    let count = try reader.read(UInt32.self)
    let offset = try reader.read(UInt64.self)
    let lastLength = try reader.read(UInt32.self)
    let flags = try reader.read(UInt32.self)
    guard flags <= 1 else { throw MalformedBytes(what: "unknown flags of an extent") }
    let session = try reader.identifier()
    let counter = try reader.read(UInt64.self)
    if flags == 1 { _ = try reader.take(Self.tagByteCount) }
    self.init(
      start: start, count: count, lastLength: lastLength,
      writeNumber: WriteNumber(session: session, counter: counter), slab: slab, offset: offset)
    try check()
  }

  /// Checks that the run lies in one slab, so that no caller plans work, or allocates memory, for
  /// more than a slab can hold.
  func check() throws(MalformedBytes) {
    guard isValid(inFileOfSize: 1 << 62 - 1), offset < SlabCounter.slabByteCountMax, slab < 1 << 31,
      UInt64(storedByteCount) <= SlabCounter.slabByteCountMax - offset
    else { throw MalformedBytes(what: "an extent that cannot be") }
  }
}

extension Extent {
  /// Decodes a record of type `30`.
  init(key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard key.bytes.count == 17, let start = key.number(at: 9) else {
      throw MalformedBytes(what: "no key of an extent")
    }
    var reader = ByteReader(value)
    try self.init(start: start, value: &reader)
    try reader.end()
  }
}
