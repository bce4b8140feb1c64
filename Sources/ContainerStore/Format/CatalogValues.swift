package import EncryptedFile

public enum FileKind: UInt8, Sendable {
  case file = 1
  case directory = 2
  case symbolicLink = 3
}

/// The id of the root directory.
let rootFileID: UInt64 = 1

/// The target of a directory entry.
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

/// The record of a file, including its first extent. Names and further extents have records of
/// their own.
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
  static let secretByteCount = 32
  static let targetByteCountMax = 4096
  static let permissionsMax: UInt16 = 0o7777
  private static let layout: UInt8 = 2

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.reserve(112 + target.count)
    writer.append(Self.layout)
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
    guard try reader.read(UInt8.self) == Self.layout else {
      throw MalformedBytes(what: "an inode of another layout")
    }
    kind = try reader.fileKind()
    let flags = try reader.read(UInt8.self)
    guard [0, 1, 3].contains(flags) else { throw MalformedBytes(what: "unknown flags of an inode") }
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
    if flags & 1 != 0 {
      let start = try reader.varint()
      let slab = try reader.varint32()
      let count = try reader.varint32()
      let offset = try reader.varint()
      let lastLength = try reader.varint32()
      let session = try reader.identifier()
      let extent = Extent(
        start: start, count: count, lastLength: lastLength,
        writeNumber: WriteNumber(session: session, counter: try reader.varint()), slab: slab, offset: offset)
      if flags & 2 != 0 { _ = try reader.take(Extent.tagByteCount) }
      try extent.check()
      firstExtent = extent
    }
    guard firstExtent == nil || kind == .file, size < 1 << 62, kind != .directory || size == 0,
      permissions <= Self.permissionsMax, kind != .symbolicLink || (!target.isEmpty && !target.contains(0))
    else { throw MalformedBytes(what: "an inode whose fields contradict each other") }
    try reader.end()
  }
}

extension Extent {
  static let valueByteCount = 48
  /// Bytes of a run tag, which this release skips.
  fileprivate static let tagByteCount = 16

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
  fileprivate func check() throws(MalformedBytes) {
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

/// Numbers that continue from one opening to the next.
struct CatalogCounters: Equatable {
  static let fileCountMax: UInt64 = 1 << 62
  /// The bound for `nextFile` when a change begins. The 2^40 ids above it are more than one change
  /// uses.
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
    // The bounds keep later increments from overflowing.
    guard nextFile > rootFileID, nextFile < Self.fileCountMax, nextSlab < 1 << 31 else {
      throw MalformedBytes(what: "counters that cannot be")
    }
  }
}

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

/// A request that has arrived: an entry of the receiver's ledger.
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
