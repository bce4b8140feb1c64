package import EncryptedFile

public enum FileKind: UInt8, Sendable {
  case file = 1
  case directory = 2
  case symbolicLink = 3
}

/// What a directory entry names.
package struct DirectoryEntry: Equatable, Sendable {
  package var kind: FileKind
  package var file: UInt64

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(kind.rawValue)
    writer.appendZeros(7)
    writer.append(file)
    return writer.bytes
  }

  init(kind: FileKind, file: UInt64) {
    self.kind = kind
    self.file = file
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    kind = try reader.fileKind()
    try reader.zeros(7)
    file = try reader.read()
    try reader.end()
  }
}

/// Everything about a file but its name and its further extents.
package struct Inode: Equatable, Sendable {
  package var kind: FileKind
  package var permissions: UInt16
  package var linkCount: UInt32 = 1
  package var size: UInt64 = 0
  /// Nanoseconds since 1970-01-01 UTC, like the other dates.
  package var created: Int64
  package var modified: Int64
  package var changed: Int64
  package var contentVersion: UInt64 = 0
  package var epoch: UInt32
  package var secret: [UInt8]
  package var firstExtent: Extent?
  package var target: [UInt8] = []
  /// It was read in the layout of format 1.
  package private(set) var hasLayout1 = false

  static let secretByteCount = 32
  static let targetByteCountMax = 4096
  private static let compactLayout: UInt8 = 2

  /// The bytes from which it was read.
  var encodedAsRead: [UInt8] { hasLayout1 ? encodedInLayout1 : encoded }

  /// In layout 2.
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.reserve(112 + target.count)
    writer.append(Self.compactLayout)
    writer.append(kind.rawValue)
    writer.append(UInt8(firstExtent == nil ? 0 : 1))
    writer.append(permissions)
    writer.append(created)
    writer.append(difference: modified, from: created)
    writer.append(difference: changed, from: created)
    writer.append(varint: UInt64(linkCount))
    writer.append(varint: size)
    writer.append(varint: contentVersion)
    writer.append(varint: UInt64(epoch))
    if kind == .file { writer.append(secret) }
    writer.append(target)
    if let extent = firstExtent {
      writer.append(varint: extent.start)
      writer.append(varint: UInt64(extent.slab))
      writer.append(varint: UInt64(extent.count))
      writer.append(varint: extent.offset)
      writer.append(varint: UInt64(extent.lastLength))
      writer.append(extent.writeNumber.session)
      writer.append(varint: extent.writeNumber.counter)
    }
    return writer.bytes
  }

  /// As format 1 has it.
  var encodedInLayout1: [UInt8] {
    var writer = ByteWriter()
    writer.append(UInt8(1))
    writer.append(kind.rawValue)
    writer.append(permissions)
    writer.append(linkCount)
    writer.append(size)
    writer.append(created)
    writer.append(modified)
    writer.append(changed)
    writer.append(contentVersion)
    writer.append(epoch)
    writer.append(UInt32(0))
    writer.append(secret)
    writer.append(UInt8(firstExtent == nil ? 0 : 1))
    writer.append(UInt8(0))
    writer.append(UInt16(target.count))
    writer.append(UInt32(0))
    if let firstExtent {
      writer.append(firstExtent.start)
      writer.append(firstExtent.encodedValue)
    }
    writer.append(target)
    return writer.bytes
  }

  init(kind: FileKind, permissions: UInt16, now: Int64, epoch: UInt32, secret: [UInt8]) {
    self.kind = kind
    self.permissions = permissions
    created = now
    modified = now
    changed = now
    self.epoch = epoch
    self.secret = secret
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    switch try reader.read(UInt8.self) {
    case Self.compactLayout: try self.init(compact: &reader)
    case 1: try self.init(layout1: &reader)
    default: throw MalformedBytes(what: "an inode of another layout")
    }
    guard firstExtent == nil || kind == .file, size < 1 << 62, kind != .directory || size == 0,
      kind == .symbolicLink ? (1...UInt64(Self.targetByteCountMax)).contains(size) : target.isEmpty,
      kind == .file || secret.allSatisfy({ $0 == 0 })
    else { throw MalformedBytes(what: "an inode whose fields contradict each other") }
    try reader.end()
  }

  private init(compact reader: inout ByteReader) throws(MalformedBytes) {
    kind = try reader.fileKind()
    let flags = try reader.read(UInt8.self)
    guard flags <= 1 else { throw MalformedBytes(what: "unknown flags of an inode") }
    permissions = try reader.read()
    created = try reader.read()
    modified = try reader.difference(from: created)
    changed = try reader.difference(from: created)
    linkCount = try reader.varint32()
    size = try reader.varint()
    contentVersion = try reader.varint()
    epoch = try reader.varint32()
    secret =
      kind == .file
      ? try reader.bytes(Self.secretByteCount) : [UInt8](repeating: 0, count: Self.secretByteCount)
    if kind == .symbolicLink {
      guard size <= UInt64(Self.targetByteCountMax) else {
        throw MalformedBytes(what: "a link target of \(size) bytes")
      }
      target = try reader.bytes(Int(size))
    }
    guard flags == 1 else { return }
    let start = try reader.varint()
    let slab = try reader.varint32()
    let count = try reader.varint32()
    let offset = try reader.varint()
    let lastLength = try reader.varint32()
    let session = try reader.identifier()
    let extent = Extent(
      start: start, count: count, lastLength: lastLength,
      writeNumber: WriteNumber(session: session, counter: try reader.varint()), slab: slab, offset: offset)
    try extent.check()
    firstExtent = extent
  }

  private init(layout1 reader: inout ByteReader) throws(MalformedBytes) {
    hasLayout1 = true
    kind = try reader.fileKind()
    permissions = try reader.read()
    linkCount = try reader.read()
    size = try reader.read()
    created = try reader.read()
    modified = try reader.read()
    changed = try reader.read()
    contentVersion = try reader.read()
    epoch = try reader.read()
    try reader.zeros(4)
    secret = try reader.bytes(Self.secretByteCount)
    let hasExtent = try reader.read(UInt8.self)
    try reader.zeros(1)
    let targetCount = try reader.read(UInt16.self)
    try reader.zeros(4)
    guard hasExtent <= 1, Int(targetCount) <= Self.targetByteCountMax,
      kind == .file ? targetCount == 0 : size == UInt64(targetCount)
    else { throw MalformedBytes(what: "an inode whose fields contradict each other") }
    if hasExtent == 1 {
      let start = try reader.read(UInt64.self)
      firstExtent = try Extent(start: start, value: &reader)
    }
    target = try reader.bytes(Int(targetCount))
  }
}

extension Extent {
  static let valueByteCount = 48

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
    try reader.zeros(4)
    let session = try reader.identifier()
    let counter = try reader.read(UInt64.self)
    self.init(
      start: start, count: count, lastLength: lastLength,
      writeNumber: WriteNumber(session: session, counter: counter), slab: slab, offset: offset)
    try check()
  }

  /// A run lies in one slab, so that nobody plans work, or takes memory, for more than a slab can hold.
  fileprivate func check() throws(MalformedBytes) {
    guard isValid(inFileOfSize: 1 << 62 - 1), offset < SlabStore.byteCountMax,
      UInt64(storedByteCount) <= SlabStore.byteCountMax - offset
    else { throw MalformedBytes(what: "an extent that cannot be") }
  }
}

extension Extent {
  /// A record of type `30`.
  init(key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard let start = key.number(at: 9) else { throw MalformedBytes(what: "an extent without a start") }
    var reader = ByteReader(value)
    try self.init(start: start, value: &reader)
    try reader.end()
  }
}

/// Numbers that go on from opening to opening.
struct CatalogCounters: Equatable {
  static let fileCountMax: UInt64 = 1 << 62
  /// Changes begin below this one, so that none comes to the end within what it does.
  static let nextFileMax = fileCountMax - 1 << 40
  var nextFile: UInt64
  var nextSlab: UInt32

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(nextFile)
    writer.append(nextSlab)
    writer.append(UInt32(0))
    return writer.bytes
  }

  init(nextFile: UInt64, nextSlab: UInt32) {
    self.nextFile = nextFile
    self.nextSlab = nextSlab
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    nextFile = try reader.read()
    nextSlab = try reader.read()
    try reader.zeros(4)
    try reader.end()
    // So that counting on never overflows.
    guard nextFile < Self.fileCountMax, nextSlab < 1 << 31 else {
      throw MalformedBytes(what: "counters that cannot be")
    }
  }
}

/// How full a slab is.
struct SlabCounter: Equatable, Sendable {
  var liveByteCount: UInt64 = 0
  /// After the last committed byte.
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
  }
}

/// That a request has arrived: the receiver's ledger.
struct Delivery: Equatable {
  var time: Int64
  var fileCount: UInt64
  var byteCount: UInt64
  /// The message's inbox directory.
  var path: String

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(time)
    writer.append(fileCount)
    writer.append(byteCount)
    writer.append(Array(path.utf8))
    return writer.bytes
  }

  init(time: Int64, fileCount: UInt64, byteCount: UInt64, path: String) {
    self.time = time
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.path = path
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    time = try reader.read()
    fileCount = try reader.read()
    byteCount = try reader.read()
    guard let path = String(validating: try reader.take(reader.remaining), as: UTF8.self) else {
      throw MalformedBytes(what: "a delivery to a path that is not UTF-8")
    }
    guard path.utf8.first == UInt8(ascii: "/") else {
      throw MalformedBytes(what: "a delivery to a path that is not absolute")
    }
    self.path = path
  }
}

extension ByteReader {
  fileprivate mutating func fileKind() throws(MalformedBytes) -> FileKind {
    let raw = try read(UInt8.self)
    guard let kind = FileKind(rawValue: raw) else {
      throw MalformedBytes(what: "an unknown kind of file (\(raw))")
    }
    return kind
  }
}
