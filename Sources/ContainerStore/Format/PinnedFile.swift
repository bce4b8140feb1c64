import EncryptedFile

/// One attachment of a message in the outbox, identified by the numbers of both.
struct Pin: Hashable {
  var number: UInt64
  var attachment: UInt32
}

extension CatalogKey {
  private static func key(_ kind: Kind, _ fields: [UInt8]...) -> CatalogKey {
    CatalogKey(bytes: [kind.rawValue] + fields.joined())
  }

  static let outboxState = CatalogKey(bytes: [Kind.outboxState.rawValue])
  static func outbox(_ number: UInt64) -> CatalogKey { key(.outbox, bigEndian(number)) }
  static func outboxMessage(_ number: UInt64) -> CatalogKey { key(.outboxMessage, bigEndian(number)) }
  static func outboxMessage(_ number: UInt64, chunk: UInt32) -> CatalogKey {
    key(.outboxMessage, bigEndian(number), bigEndian(chunk))
  }
  static func pinned(_ number: UInt64) -> CatalogKey { key(.pinned, bigEndian(number)) }
  static func pinned(_ pin: Pin) -> CatalogKey {
    key(.pinned, bigEndian(pin.number), bigEndian(pin.attachment))
  }
  static func pinnedExtents(_ pin: Pin) -> CatalogKey {
    key(.pinnedExtent, bigEndian(pin.number), bigEndian(pin.attachment))
  }
  static func pinnedExtent(_ pin: Pin, start: UInt64) -> CatalogKey {
    key(.pinnedExtent, bigEndian(pin.number), bigEndian(pin.attachment), bigEndian(start))
  }
  static func pins(ofFile file: UInt64) -> CatalogKey { key(.pinOfFile, bigEndian(file)) }
  static func pin(ofFile file: UInt64, _ pin: Pin) -> CatalogKey {
    key(.pinOfFile, bigEndian(file), bigEndian(pin.number), bigEndian(pin.attachment))
  }

  /// The pin in a key of type `71`, `72` or, after the file, `75`. Numbers begin with 1.
  func pin(at offset: Int) -> Pin? {
    guard let number = number(at: offset), OutboxState.numbers.contains(number), bytes.count >= offset + 12
    else { return nil }
    return Pin(
      number: number, attachment: bytes[(offset + 8)..<(offset + 12)].reduce(0) { $0 << 8 | UInt32($1) })
  }
}

/// The version that an attached file had when its message was put into the outbox: a record of type
/// `71`.
struct PinnedFile {
  var file: UInt64
  /// The absolute path.
  var path: [UInt8]
  var inode: Inode

  /// The maximum length of a path, for which a record has room.
  static let pathByteCountMax = 32_000

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.reserve(128 + path.count)
    writer.append(file)
    writer.append(UInt16(path.count))
    writer.append(path)
    writer.append(inode.encoded)
    return writer.bytes
  }

  init(file: UInt64, path: [UInt8], inode: Inode) {
    self.file = file
    self.path = path
    self.inode = inode
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    file = try reader.read()
    path = try reader.bytes(Int(try reader.read(UInt16.self)))
    inode = try Inode(try reader.bytes(reader.remaining))
    guard inode.kind == .file,
      (rootFileID + 1..<CatalogCounters.fileCountMax).contains(file)
    else { throw MalformedBytes(what: "an attachment that is no file") }
    guard path.count <= Self.pathByteCountMax, path.first == UInt8(ascii: "/"),
      FileName.areNames(path.dropFirst())
    else { throw MalformedBytes(what: "an attachment with a path that cannot be") }
  }

  var pathText: String { String(decoding: path, as: UTF8.self) }
}
