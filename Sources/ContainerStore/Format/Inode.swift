package import EncryptedFile

public enum FileKind: UInt8, Sendable {
  case file = 1
  case directory = 2
  case symbolicLink = 3
}

/// The id of the root directory.
let rootFileID: UInt64 = 1

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

extension ByteReader {
  mutating func fileKind() throws(MalformedBytes) -> FileKind {
    let raw = try read(UInt8.self)
    guard let kind = FileKind(rawValue: raw) else {
      throw MalformedBytes(what: "an unknown kind of file (\(raw))")
    }
    return kind
  }
}
