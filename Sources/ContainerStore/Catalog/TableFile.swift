import EncryptedFile
import SodiumPrimitives

/// Ciphers for whoever needs one for a moment, on any thread.
final class CipherPool: Sendable {
  let backend: CipherBackend
  private let idle: Guarded<[SecretStreamCipher]> = Guarded([])

  init(_ backend: CipherBackend) { self.backend = backend }

  func withCipher<R, E: Error>(_ body: (SecretStreamCipher) throws(E) -> R) throws(E) -> R {
    let cipher = idle.withLock { $0.popLast() } ?? SecretStreamCipher(backend)
    defer { idle.withLock { if $0.count < 8 { $0.append(cipher) } } }
    return try body(cipher)
  }
}

/// An immutable table of the catalog, read block by block (CONTAINER-FORMAT.md, "Tables").
///
/// Only the footer is read when it is opened. Whatever does not have the shape that the format page gives it is
/// ``MalformedBytes`` then, and `tableDamaged` later.
final class TableFile: Sendable {
  let table: Generation.Table
  let entryCount: UInt64
  private let file: any BlockFile
  private let place: Table.Place
  private let key: SharedKey
  private let ciphers: CipherPool
  private let cache: BlockCache
  private let dataBlockCount: UInt64
  private let indexBlocks: [Table.BlockPointer]
  private let footerOffset: UInt64

  init(
    _ table: Generation.Table, file: any BlockFile, container: Identifier, key: SharedKey,
    ciphers: CipherPool,
    cache: BlockCache
  ) throws {
    self.table = table
    self.file = file
    place = Table.Place(container: container, table: table.id)
    self.key = key
    self.ciphers = ciphers
    self.cache = cache
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    guard try file.size() == table.byteCount else { throw MalformedBytes(what: "a table of another length") }
    guard UInt64(table.footerLength) + overhead <= table.byteCount else {
      throw MalformedBytes(what: "a table shorter than its footer")
    }
    footerOffset = table.byteCount - overhead - UInt64(table.footerLength)
    let (plaintext, authenticator) = try Self.open(
      Table.BlockPointer(offset: footerOffset, length: table.footerLength, firstKey: CatalogKey(bytes: [])),
      .footer,
      of: file, byteCount: table.byteCount, place: place, key: key, ciphers: ciphers)
    guard authenticator == table.footerAuthenticator else {
      throw MalformedBytes(what: "the footer of another table")
    }
    var reader = ByteReader(plaintext)
    entryCount = try reader.read()
    dataBlockCount = try reader.read()
    let indexBlockCount = try reader.read(UInt32.self)
    try reader.zeros(4)
    var pointers: [Table.BlockPointer] = []
    for _ in 0..<indexBlockCount {
      let pointer = try Table.BlockPointer(&reader)
      if let last = pointers.last {
        guard pointer.offset == last.end, last.firstKey < pointer.firstKey else {
          throw MalformedBytes(what: "index blocks with gaps")
        }
      }
      pointers.append(pointer)
    }
    try reader.end()
    guard pointers.last?.end ?? 0 == footerOffset else {
      throw MalformedBytes(what: "a gap before the footer")
    }
    indexBlocks = pointers
  }

  deinit { cache.forget(table: table.id) }

  // MARK: Blocks

  private static func open(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, of file: any BlockFile, byteCount: UInt64,
    place: Table.Place, key: SharedKey, ciphers: CipherPool
  ) throws -> (plaintext: [UInt8], authenticator: [UInt8]) {
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    let count = Int(pointer.length)
    let countMax = kind == .footer ? Table.footerByteCountMax : Table.blockByteCountMax
    guard count >= 1, count <= countMax, pointer.offset <= byteCount,
      UInt64(count) + overhead <= byteCount - pointer.offset
    else { throw MalformedBytes(what: "a block outside its table") }
    let sealed = try file.read(count + Int(overhead), at: pointer.offset)
    let ad = Table.ad(place, offset: pointer.offset, count: count, kind: kind)
    guard
      let plaintext = ciphers.withCipher({ cipher in
        try? SealedMessage.open(sealed, key: key.key, ad: ad, cipher: cipher)
      })
    else { throw MalformedBytes(what: "the block at byte \(pointer.offset) of a table is not authentic") }
    return (plaintext, Array(sealed.suffix(16)))
  }

  private func load(_ pointer: Table.BlockPointer, _ kind: Table.BlockKind) throws -> TableBlock {
    var (plaintext, _) = try Self.open(
      pointer, kind, of: file, byteCount: table.byteCount, place: place, key: key, ciphers: ciphers)
    defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
    return try TableBlock(plaintext, kind: kind, firstKey: pointer.firstKey)
  }

  /// Through the cache.
  fileprivate func block(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, cached: Bool = true
  ) throws -> TableBlock {
    do {
      guard cached else { return try load(pointer, kind) }
      return try cache.block(at: BlockCache.Place(table: table.id, offset: pointer.offset)) {
        try load(pointer, kind)
      }
    } catch let error as MalformedBytes {
      throw ContainerError(.tableDamaged, detail: error.what)
    }
  }

  // MARK: Looking up

  enum Found {
    case absent
    case deleted
    case value([UInt8])
  }

  func find(_ key: CatalogKey) throws -> Found {
    guard let data = try dataBlock(for: key) else { return .absent }
    return Self.find(key, in: data)
  }

  /// Finds keys that come in ascending order: looks first where the last one was.
  struct Finder {
    private let table: TableFile
    private var data: TableBlock?

    init(_ table: TableFile) { self.table = table }

    mutating func find(_ key: CatalogKey) throws -> Found {
      if data?.spans(key) != true { data = try table.dataBlock(for: key) }
      guard let data else { return .absent }
      return TableFile.find(key, in: data)
    }
  }

  private static func find(_ key: CatalogKey, in data: TableBlock) -> Found {
    let (entry, isThere) = data.search(key)
    guard isThere else { return .absent }
    return data.value(entry).map(Found.value) ?? .deleted
  }

  /// The block in which a key stands if it is there.
  private func dataBlock(for key: CatalogKey) throws -> TableBlock? {
    guard let index = Self.last(notAfter: key, in: indexBlocks) else { return nil }
    let pointers = try block(indexBlocks[index], .index)
    let (position, found) = pointers.search(key)
    guard found || position > 0 else { return nil }
    return try block(pointers.pointer(found ? position : position - 1), .data)
  }

  private static func last(notAfter key: CatalogKey, in pointers: [Table.BlockPointer]) -> Int? {
    var low = 0
    var high = pointers.count
    while low < high {
      let middle = (low + high) / 2
      if key < pointers[middle].firstKey { high = middle } else { low = middle + 1 }
    }
    return low == 0 ? nil : low - 1
  }

  /// A place among the entries.
  struct Position {
    fileprivate let cached: Bool
    fileprivate var index: Int
    fileprivate var pointers: TableBlock?
    fileprivate var pointer = 0
    fileprivate var data: TableBlock?
    fileprivate var entry = 0
  }

  /// Where the first entry stands whose key is not before `key`.
  func position(of key: CatalogKey, cached: Bool = true) throws -> Position {
    guard let index = Self.last(notAfter: key, in: indexBlocks) else {
      return Position(cached: cached, index: 0)
    }
    let pointers = try block(indexBlocks[index], .index, cached: cached)
    let (position, found) = pointers.search(key)
    let pointer = found || position == 0 ? position : position - 1
    let data = try block(pointers.pointer(pointer), .data, cached: cached)
    return Position(
      cached: cached, index: index, pointers: pointers, pointer: pointer, data: data,
      entry: data.search(key).position)
  }

  /// The entry there, after which the position is that of the next; nil at the end. A nil value is a tombstone.
  func next(_ position: inout Position) throws -> (key: CatalogKey, value: [UInt8]?)? {
    while true {
      if let data = position.data, position.entry < data.count {
        defer { position.entry += 1 }
        return (data.key(position.entry), data.value(position.entry))
      }
      if let pointers = position.pointers {
        if position.data != nil { position.pointer += 1 }
        if position.pointer < pointers.count {
          position.data = try block(pointers.pointer(position.pointer), .data, cached: position.cached)
          position.entry = 0
          continue
        }
        position = Position(cached: position.cached, index: position.index + 1)
      }
      guard position.index < indexBlocks.count else { return nil }
      position.pointers = try block(indexBlocks[position.index], .index, cached: position.cached)
    }
  }

  // MARK: The whole table

  /// Opens every block, past the cache, and throws ``MalformedBytes`` unless they tile the file and are in order.
  func check() throws {
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    var entriesSeen: UInt64 = 0
    var blocksSeen: UInt64 = 0
    var last: CatalogKey?
    var dataEnd: UInt64 = 0
    let indexOffset = indexBlocks.first?.offset ?? footerOffset
    for pointer in indexBlocks {
      let pointers = try load(pointer, .index)
      for i in 0..<pointers.count {
        let data = pointers.pointer(i)
        guard data.offset == dataEnd, data.offset < indexOffset else {
          throw MalformedBytes(what: "data blocks with gaps")
        }
        dataEnd = data.offset + UInt64(data.length) + overhead
        let block = try load(data, .data)
        if let last, block.key(0) <= last { throw MalformedBytes(what: "a table out of order") }
        last = block.key(block.count - 1)
        entriesSeen += UInt64(block.count)
        blocksSeen += 1
      }
    }
    guard dataEnd == indexOffset, entriesSeen == entryCount, blocksSeen == dataBlockCount else {
      throw MalformedBytes(what: "a table with other counts than its footer says")
    }
  }
}
