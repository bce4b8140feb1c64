import EncryptedFile

/// One attachment of a message in the outbox, by their numbers.
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
  static func waitingRequest(_ arrival: UInt64) -> CatalogKey { key(.queued, bigEndian(arrival)) }
  static func waitingRequestMessage(_ arrival: UInt64) -> CatalogKey {
    key(.queuedMessage, bigEndian(arrival))
  }

  /// Of a key of type `71`, `72` or, behind the file, `75`. Numbers begin with 1.
  func pin(at offset: Int) -> Pin? {
    guard let number = number(at: offset), OutboxState.numbers.contains(number), bytes.count >= offset + 12
    else { return nil }
    return Pin(
      number: number, attachment: bytes[(offset + 8)..<(offset + 12)].reduce(0) { $0 << 8 | UInt32($1) })
  }
}

/// A file as it was when a message that it belongs to was put into the outbox: a record of type `71`.
struct PinnedFile {
  var file: UInt64
  /// Absolute.
  var path: [UInt8]
  var inode: Inode

  /// So that a record has room for it.
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
      InboxPlaces.areNames(path.dropFirst())
    else { throw MalformedBytes(what: "an attachment with a path that cannot be") }
  }

  var pathText: String { String(decoding: path, as: UTF8.self) }
}

extension OutboxEntry {
  private static let stateWaiting: UInt8 = 0
  private static let stateOffered: UInt8 = 1

  /// The value of a record of type `70`.
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(mayBeOffered ? Self.stateOffered : Self.stateWaiting)
    writer.appendZeros(7)
    writer.append(time)
    writer.append(id)
    writer.append(fileCount)
    writer.append(byteCount)
    writer.append(Array(receiver.utf8))
    return writer.bytes
  }

  init(key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard key.kind == .outbox, key.bytes.count == 9, let number = key.number(at: 1),
      OutboxState.numbers.contains(number)
    else {
      throw MalformedBytes(what: "a message of the outbox without a number")
    }
    var reader = ByteReader(value)
    let state = try reader.read(UInt8.self)
    guard state == Self.stateWaiting || state == Self.stateOffered else {
      throw MalformedBytes(what: "a message of the outbox in an unknown state")
    }
    mayBeOffered = state == Self.stateOffered
    try reader.zeros(7)
    self.number = number
    time = try reader.read()
    id = try reader.bytes(Identifier.byteCount)
    fileCount = try reader.read()
    byteCount = try reader.read()
    guard let receiver = String(validating: try reader.take(reader.remaining), as: UTF8.self) else {
      throw MalformedBytes(what: "a receiver whose name is not UTF-8")
    }
    guard (1...OutgoingMessage.receiverByteCountMax).contains(receiver.utf8.count) else {
      throw MalformedBytes(what: "a receiver whose name has \(receiver.utf8.count) bytes")
    }
    self.receiver = receiver
  }
}

/// The record of type `74`: what tells this outbox from one that a copy of the container has, and its numbers.
struct OutboxState {
  static let numbers: Range<UInt64> = 1..<1 << 62

  var incarnation: [UInt8]
  var nextNumber: UInt64 = 1

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(incarnation)
    writer.append(nextNumber)
    return writer.bytes
  }

  init(incarnation: [UInt8]) { self.incarnation = incarnation }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    incarnation = try reader.bytes(Identifier.byteCount)
    nextNumber = try reader.read()
    try reader.end()
    guard Self.numbers.contains(nextNumber) else {
      throw MalformedBytes(what: "a number of the outbox that cannot be")
    }
  }
}
