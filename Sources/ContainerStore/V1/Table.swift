import EncryptedFile
import SodiumPrimitives

/// Writing and reading of sorted tables (CONTAINER-FORMAT.md, "Tables").
enum Table {
  static let blockByteCountMax = 65536
  static let footerByteCountMax = 16_777_216
  /// Chosen by us; the format only has the maximum.
  private static let dataBlockByteCountAim = 16384
  private static let indexBlockByteCountAim = 49152

  enum BlockKind: UInt8 {
    case data = 1
    case index = 2
    case footer = 3
  }

  struct Place {
    var container: Identifier
    var table: Identifier
  }

  private struct BlockPointer {
    var offset: UInt64
    var length: UInt32
    var firstKey: CatalogKey

    func append(to writer: inout ByteWriter) {
      writer.append(offset)
      writer.append(length)
      writer.append(UInt16(firstKey.bytes.count))
      writer.append(firstKey.bytes)
    }

    init(offset: UInt64, length: UInt32, firstKey: CatalogKey) {
      self.offset = offset
      self.length = length
      self.firstKey = firstKey
    }

    init(_ reader: inout ByteReader) throws(MalformedBytes) {
      offset = try reader.read()
      length = try reader.read()
      firstKey = try reader.catalogKey()
    }
  }

  /// Writes all records as one table; does not sync.
  static func write(
    _ records: OrderedRecords, to file: any BlockFile, place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher
  ) throws(IOFailure) -> Generation.Table {
    var offset: UInt64 = 0
    var authenticator: [UInt8] = []
    var buffer: [UInt8] = []
    var bufferOffset: UInt64 = 0

    func append(_ plaintext: [UInt8], _ kind: BlockKind, key: borrowing SecretKey) throws(IOFailure) -> UInt64
    {
      let sealed = SealedMessage.seal(
        plaintext, key: key, ad: ad(place, offset: offset, count: plaintext.count, kind: kind), cipher: cipher
      )
      let begin = offset
      offset += UInt64(sealed.count)
      authenticator = Array(sealed.suffix(16))
      buffer += sealed
      if buffer.count >= 1 << 20 { try drain() }
      return begin
    }
    func drain() throws(IOFailure) {
      try file.write(buffer, at: bufferOffset)
      bufferOffset += UInt64(buffer.count)
      buffer.removeAll(keepingCapacity: true)
    }

    var dataBlocks: [BlockPointer] = []
    var block = ByteWriter()
    var firstKey: CatalogKey?
    var entryCount: UInt32 = 0
    func finishBlock(key: borrowing SecretKey) throws(IOFailure) {
      guard let first = firstKey else { return }
      var writer = ByteWriter()
      writer.append(entryCount)
      writer.append(block.bytes)
      let begin = try append(writer.bytes, .data, key: key)
      dataBlocks.append(BlockPointer(offset: begin, length: UInt32(writer.bytes.count), firstKey: first))
      block = ByteWriter()
      firstKey = nil
      entryCount = 0
    }
    var failure: IOFailure?
    records.scan(from: CatalogKey(bytes: [])) { recordKey, value in
      do throws(IOFailure) {
        let byteCount = 7 + recordKey.bytes.count + value.count
        if firstKey != nil, block.bytes.count + byteCount > dataBlockByteCountAim {
          try finishBlock(key: key)
        }
        if firstKey == nil { firstKey = recordKey }
        entryCount += 1
        block.append(UInt8(1))
        block.append(UInt16(recordKey.bytes.count))
        block.append(recordKey.bytes)
        block.append(UInt32(value.count))
        block.append(value)
        return true
      } catch {
        failure = error
        return false
      }
    }
    if let failure { throw failure }
    try finishBlock(key: key)

    var indexBlocks: [BlockPointer] = []
    var rest = dataBlocks[...]
    while let first = rest.first {
      var writer = ByteWriter()
      var count = 0
      for pointer in rest where writer.bytes.count < indexBlockByteCountAim {
        pointer.append(to: &writer)
        count += 1
      }
      var indexBlock = ByteWriter()
      indexBlock.append(UInt32(count))
      indexBlock.append(writer.bytes)
      let begin = try append(indexBlock.bytes, .index, key: key)
      indexBlocks.append(
        BlockPointer(offset: begin, length: UInt32(indexBlock.bytes.count), firstKey: first.firstKey))
      rest = rest.dropFirst(count)
    }

    var footer = ByteWriter()
    footer.append(UInt64(records.count))
    footer.append(UInt64(dataBlocks.count))
    footer.append(UInt32(indexBlocks.count))
    footer.append(UInt32(0))
    for pointer in indexBlocks { pointer.append(to: &footer) }
    precondition(footer.bytes.count <= footerByteCountMax, "a table has at most 16 MiB of footer")
    _ = try append(footer.bytes, .footer, key: key)
    try drain()
    return Generation.Table(
      id: place.table, byteCount: offset, footerLength: UInt32(footer.bytes.count),
      footerAuthenticator: authenticator)
  }

  /// Calls `body` for every entry of the table, in order; a nil value is a tombstone. Throws ``MalformedBytes`` when the table
  /// is not what its generation says.
  static func read(
    _ table: Generation.Table, from file: any BlockFile, place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher, _ body: (CatalogKey, [UInt8]?) throws -> Void
  ) throws {
    guard try file.size() == table.byteCount else { throw MalformedBytes(what: "a table of another length") }
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)

    func block(
      _ offset: UInt64, _ length: UInt32, _ kind: BlockKind, key: borrowing SecretKey
    ) throws -> (plaintext: [UInt8], authenticator: [UInt8]) {
      let count = Int(length)
      guard count >= 1, count <= (kind == .footer ? footerByteCountMax : blockByteCountMax),
        offset <= table.byteCount,
        UInt64(count) + overhead <= table.byteCount - offset
      else { throw MalformedBytes(what: "a block outside its table") }
      let sealed = try file.read(count + Int(overhead), at: offset)
      guard
        let plaintext = try? SealedMessage.open(
          sealed, key: key, ad: ad(place, offset: offset, count: count, kind: kind), cipher: cipher)
      else { throw MalformedBytes(what: "the block at byte \(offset) of a table is not authentic") }
      return (plaintext, Array(sealed.suffix(16)))
    }

    guard UInt64(table.footerLength) + overhead <= table.byteCount else {
      throw MalformedBytes(what: "a table shorter than its footer")
    }
    let footer = try block(
      table.byteCount - overhead - UInt64(table.footerLength), table.footerLength, .footer, key: key)
    guard footer.authenticator == table.footerAuthenticator else {
      throw MalformedBytes(what: "the footer of another table")
    }
    var reader = ByteReader(footer.plaintext)
    let entryCount = try reader.read(UInt64.self)
    let dataBlockCount = try reader.read(UInt64.self)
    let indexBlockCount = try reader.read(UInt32.self)
    try reader.zeros(4)
    var entriesSeen: UInt64 = 0
    var blocksSeen: UInt64 = 0
    var last: CatalogKey?
    // Blocks tile the file: data, then index, then the footer.
    var dataEnd: UInt64 = 0
    var indexEnd: UInt64?
    let footerOffset = table.byteCount - overhead - UInt64(table.footerLength)
    for _ in 0..<indexBlockCount {
      let pointer = try BlockPointer(&reader)
      guard pointer.offset < footerOffset, pointer.offset == indexEnd ?? pointer.offset else {
        throw MalformedBytes(what: "index blocks with gaps")
      }
      let indexOffset = indexEnd ?? pointer.offset
      indexEnd = pointer.offset + UInt64(pointer.length) + overhead
      var index = ByteReader(try block(pointer.offset, pointer.length, .index, key: key).plaintext)
      let pointerCount = try index.read(UInt32.self)
      guard pointerCount > 0 else { throw MalformedBytes(what: "an index block without entries") }
      for i in 0..<pointerCount {
        let data = try BlockPointer(&index)
        guard data.offset == dataEnd, data.offset < indexOffset, i > 0 || data.firstKey == pointer.firstKey
        else {
          throw MalformedBytes(what: "data blocks with gaps")
        }
        dataEnd = data.offset + UInt64(data.length) + overhead
        var entries = ByteReader(try block(data.offset, data.length, .data, key: key).plaintext)
        let count = try entries.read(UInt32.self)
        guard count > 0 else { throw MalformedBytes(what: "a data block without entries") }
        for i in 0..<count {
          let operation = try entries.read(UInt8.self)
          let recordKey = try entries.catalogKey()
          let value = try entries.catalogValue()
          guard operation == 1 || (operation == 2 && value.isEmpty) else {
            throw MalformedBytes(what: "an unknown operation in a table")
          }
          guard i > 0 || recordKey == data.firstKey else {
            throw MalformedBytes(what: "an index that does not fit its block")
          }
          if let last, recordKey <= last { throw MalformedBytes(what: "a table out of order") }
          try body(recordKey, operation == 1 ? value : nil)
          last = recordKey
          entriesSeen += 1
        }
        try entries.end()
        blocksSeen += 1
      }
      try index.end()
    }
    guard indexEnd ?? 0 == footerOffset else { throw MalformedBytes(what: "a gap before the footer") }
    try reader.end()
    guard entriesSeen == entryCount, blocksSeen == dataBlockCount else {
      throw MalformedBytes(what: "a table with other counts than its footer says")
    }
  }

  private static func ad(_ place: Place, offset: UInt64, count: Int, kind: BlockKind) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(label("OD1-block"))
    writer.append(place.container)
    writer.append(place.table)
    writer.append(offset)
    writer.append(UInt32(count))
    writer.append(kind.rawValue)
    writer.appendZeros(3)
    return writer.bytes
  }
}
