import EncryptedFile
import SodiumPrimitives

/// The layout of sorted tables, and their writer (CONTAINER-FORMAT.md, "Tables").
enum Table {
  static let blockByteCountMax = 65536
  static let footerByteCountMax = 16_777_216
  /// Target sizes of this implementation; the format only sets the maximum.
  private static let dataBlockByteCountAim = 16384
  private static let indexBlockByteCountAim = 16384

  enum BlockKind: UInt8 {
    case data = 1
    case index = 2
    case footer = 3
  }

  struct Place {
    var container: Identifier
    var table: Identifier
  }

  /// The location of a block, and the first key in it or, for an index block, below it.
  struct BlockPointer {
    var offset: UInt64
    /// Bytes of the plaintext.
    var length: UInt32
    var firstKey: CatalogKey

    var end: UInt64 { offset + UInt64(length) + UInt64(SecretStreamCipher.overheadByteCount) }

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
      guard offset < 1 << 62 else { throw MalformedBytes(what: "a block outside its table") }
    }
  }

  /// Writes the records that `next` returns in ascending order as one table; does not sync. A nil
  /// value is a tombstone.
  static func write(
    to file: CopiedFile, place: Place, key: borrowing SecretKey, keying: Generation.Table.Keying,
    cipher: SecretStreamCipher, next: () throws -> (key: CatalogKey, value: [UInt8]?)?
  ) throws -> Generation.Table {
    var output = Output(file: file, place: place, cipher: cipher)
    var dataBlocks: [BlockPointer] = []
    var block = ByteWriter()
    var firstKey: CatalogKey?
    var blockEntryCount: UInt32 = 0
    var entryCount: UInt64 = 0
    func finishBlock(key: borrowing SecretKey) throws {
      guard let first = firstKey else { return }
      var writer = ByteWriter()
      writer.reserve(block.bytes.count + 4)
      writer.append(blockEntryCount)
      writer.append(block.bytes)
      dataBlocks.append(try output.append(writer.bytes, .data, firstKey: first, key: key))
      block.removeAll()
      firstKey = nil
      blockEntryCount = 0
    }
    while let (recordKey, value) = try next() {
      let byteCount = 7 + recordKey.bytes.count + (value?.count ?? 0)
      if firstKey != nil, block.bytes.count + byteCount > dataBlockByteCountAim { try finishBlock(key: key) }
      if firstKey == nil { firstKey = recordKey }
      blockEntryCount += 1
      entryCount += 1
      block.append(UInt8(value == nil ? 2 : 1))
      block.append(UInt16(recordKey.bytes.count))
      block.append(recordKey.bytes)
      block.append(UInt32(value?.count ?? 0))
      if let value { block.append(value) }
    }
    try finishBlock(key: key)

    var indexBlocks: [BlockPointer] = []
    var rest = dataBlocks[...]
    while let first = rest.first {
      var writer = ByteWriter()
      var count = 0
      for pointer in rest {
        guard writer.bytes.count < indexBlockByteCountAim else { break }
        pointer.append(to: &writer)
        count += 1
      }
      var indexBlock = ByteWriter()
      indexBlock.append(UInt32(count))
      indexBlock.append(writer.bytes)
      indexBlocks.append(try output.append(indexBlock.bytes, .index, firstKey: first.firstKey, key: key))
      rest = rest.dropFirst(count)
    }

    var footer = ByteWriter()
    footer.append(entryCount)
    footer.append(UInt64(dataBlocks.count))
    footer.append(UInt32(indexBlocks.count))
    footer.append(UInt32(0))
    for pointer in indexBlocks { pointer.append(to: &footer) }
    precondition(footer.bytes.count <= footerByteCountMax, "a table has at most 16 MiB of footer")
    _ = try output.append(footer.bytes, .footer, firstKey: CatalogKey(bytes: []), key: key)
    try output.drain()
    return Generation.Table(
      id: place.table, byteCount: output.offset, footerLength: UInt32(footer.bytes.count),
      footerTag: output.tag, keying: keying)
  }

  /// Seals blocks back to back, and writes them in pieces of 1 MiB.
  private struct Output {
    let file: CopiedFile
    let place: Place
    let cipher: SecretStreamCipher
    var offset: UInt64 = 0
    /// The tag of the last block.
    var tag: [UInt8] = []
    private var buffer: [UInt8] = []
    private var bufferOffset: UInt64 = 0

    init(file: CopiedFile, place: Place, cipher: SecretStreamCipher) {
      self.file = file
      self.place = place
      self.cipher = cipher
    }

    mutating func append(
      _ plaintext: [UInt8], _ kind: BlockKind, firstKey: CatalogKey, key: borrowing SecretKey
    ) throws -> BlockPointer {
      let sealed = try SealedMessage.seal(
        plaintext, key: key, ad: Table.ad(place, offset: offset, count: plaintext.count, kind: kind),
        cipher: cipher)
      let pointer = BlockPointer(offset: offset, length: UInt32(plaintext.count), firstKey: firstKey)
      offset += UInt64(sealed.count)
      tag = Array(sealed.suffix(16))
      buffer += sealed
      if buffer.count >= 1 << 20 { try drain() }
      return pointer
    }

    mutating func drain() throws(IOFailure) {
      try file.write(buffer, at: bufferOffset)
      bufferOffset += UInt64(buffer.count)
      buffer.removeAll(keepingCapacity: true)
    }
  }

  static func ad(_ place: Place, offset: UInt64, count: Int, kind: BlockKind) -> [UInt8] {
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
