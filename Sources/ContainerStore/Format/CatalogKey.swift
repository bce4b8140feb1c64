/// A key of the catalog's single ordered key space: a type byte, then fields whose byte order is
/// their sort order.
package struct CatalogKey: Hashable, Comparable, Sendable {
  package let bytes: [UInt8]

  /// The types of CONTAINER-FORMAT.md, "Catalog", that this release writes or reads.
  package enum Kind: UInt8, Sendable {
    case state = 0x01
    case entry = 0x10
    case inode = 0x20
    case extent = 0x30
    case attribute = 0x40
    case slab = 0x50
    case sender = 0x60
    case delivery = 0x61
    case deliveryByRequest = 0x62
    case outbox = 0x70
    case pinned = 0x71
    case pinnedExtent = 0x72
    case outboxMessage = 0x73
    case outboxState = 0x74
    case pinOfFile = 0x75
    case outboxReceiver = 0x76
    case staging = 0x77
    case queued = 0x78
    case queuedMessage = 0x79
    case anchor = 0x80
  }

  static let byteCountMax = 600

  package init(bytes: [UInt8]) { self.bytes = bytes }

  package static let state = CatalogKey(bytes: [Kind.state.rawValue])

  package static func entry(parent: UInt64, name: FileName) -> CatalogKey {
    CatalogKey(bytes: [Kind.entry.rawValue] + bigEndian(parent) + name.bytes)
  }
  package static func entries(parent: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.entry.rawValue] + bigEndian(parent))
  }
  package static func inode(_ file: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.inode.rawValue] + bigEndian(file))
  }
  package static func extent(file: UInt64, start: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.extent.rawValue] + bigEndian(file) + bigEndian(start))
  }
  package static func extents(file: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.extent.rawValue] + bigEndian(file))
  }
  package static func attributes(file: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.attribute.rawValue] + bigEndian(file))
  }
  package static func attribute(file: UInt64, name: [UInt8]) -> CatalogKey {
    CatalogKey(bytes: attributes(file: file).bytes + name)
  }
  package static func slab(_ slab: UInt32) -> CatalogKey {
    CatalogKey(bytes: [Kind.slab.rawValue] + bigEndian(slab))
  }
  package static func delivery(sender: [UInt8], request: [UInt8]) -> CatalogKey {
    CatalogKey(bytes: [Kind.deliveryByRequest.rawValue, UInt8(sender.count)] + sender + request)
  }
  static func staging(_ directory: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.staging.rawValue] + bigEndian(directory))
  }
  package static func all(_ kind: Kind) -> CatalogKey { CatalogKey(bytes: [kind.rawValue]) }

  package var kind: Kind? { bytes.first.flatMap(Kind.init) }

  func number(at offset: Int) -> UInt64? {
    guard offset >= 0, bytes.count >= offset + 8 else { return nil }
    return bytes[offset..<(offset + 8)].reduce(0) { $0 << 8 | UInt64($1) }
  }

  package func hasPrefix(_ prefix: CatalogKey) -> Bool { bytes.starts(with: prefix.bytes) }

  package static func < (a: CatalogKey, b: CatalogKey) -> Bool {
    a.bytes.withUnsafeBytes { a in b.bytes.withUnsafeBytes { b in compareBytes(a, b) < 0 } }
  }

  static func bigEndian<T: FixedWidthInteger>(_ value: T) -> [UInt8] {
    withUnsafeBytes(of: value.bigEndian) { [UInt8]($0) }
  }
}

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The order of two byte strings: negative when `a` is before `b`, zero when they are equal.
func compareBytes(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Int {
  let count = min(a.count, b.count)
  let order = count == 0 ? 0 : Int(memcmp(a.baseAddress!, b.baseAddress!, count))
  return order == 0 ? a.count - b.count : order
}
