import EncryptedFile
import SodiumPrimitives

/// An opened block of a table. Its entries can be searched without being copied.
final class TableBlock: @unchecked Sendable {
  // Invariant: memory and entries are written in the initialiser only.
  private let memory: UnsafeMutableRawBufferPointer
  private let entries: [Entry]
  let kind: Table.BlockKind

  private struct Entry {
    var key: Range<UInt32>
    /// The value in a data block; nil for a tombstone.
    var value: Range<UInt32>?
    /// The block that an entry of an index block leads to.
    var pointer: (offset: UInt64, length: UInt32)
  }

  /// Throws ``MalformedBytes`` unless the entries fill the block, with keys in ascending order, and
  /// the first is `firstKey`, if it is known.
  init(_ plaintext: [UInt8], kind: Table.BlockKind, firstKey: CatalogKey? = nil) throws(MalformedBytes) {
    var reader = ByteReader(plaintext)
    let count = try reader.read(UInt32.self)
    guard count > 0 else { throw MalformedBytes(what: "a block without entries") }
    var entries: [Entry] = []
    // An entry takes at least seven bytes: the length of the block bounds the memory, its count
    // does not.
    entries.reserveCapacity(min(Int(count), plaintext.count / 7))
    var last: ArraySlice<UInt8>?
    for _ in 0..<count {
      var pointer: (offset: UInt64, length: UInt32) = (0, 0)
      var operation: UInt8 = 1
      if kind == .index {
        pointer = (try reader.read(), try reader.read())
      } else {
        operation = try reader.read()
      }
      let keyCount = Int(try reader.read(UInt16.self))
      guard (1...CatalogKey.byteCountMax).contains(keyCount) else {
        throw MalformedBytes(what: "a key of \(keyCount) bytes")
      }
      let key = try reader.take(keyCount)
      if let last, !last.lexicographicallyPrecedes(key) { throw MalformedBytes(what: "a table out of order") }
      guard last != nil || firstKey.map({ key.elementsEqual($0.bytes) }) ?? true else {
        throw MalformedBytes(what: "an index that does not fit its block")
      }
      last = key
      var value: Range<UInt32>?
      if kind == .data {
        let valueCount = Int(try reader.read(UInt32.self))
        guard operation == 1 || (operation == 2 && valueCount == 0),
          valueCount <= CatalogChange.valueByteCountMax
        else { throw MalformedBytes(what: "an unknown operation in a table") }
        let bytes = try reader.take(valueCount)
        if operation == 1 { value = UInt32(bytes.startIndex)..<UInt32(bytes.endIndex) }
      }
      entries.append(
        Entry(key: UInt32(key.startIndex)..<UInt32(key.endIndex), value: value, pointer: pointer))
    }
    try reader.end()
    memory = .allocate(byteCount: plaintext.count, alignment: 8)
    memory.copyBytes(from: plaintext)
    self.entries = entries
    self.kind = kind
  }

  deinit {
    wipe(memory)
    memory.deallocate()
  }

  var count: Int { entries.count }
  /// The bytes that the block takes in a cache.
  var memoryByteCount: Int { memory.count + entries.count * MemoryLayout<Entry>.stride + 64 }

  func key(_ i: Int) -> CatalogKey { CatalogKey(bytes: copy(entries[i].key)) }
  /// The value of an entry; nil for a tombstone.
  func value(_ i: Int) -> [UInt8]? { entries[i].value.map(copy) }

  func pointer(_ i: Int) -> Table.BlockPointer {
    Table.BlockPointer(offset: entries[i].pointer.offset, length: entries[i].pointer.length, firstKey: key(i))
  }

  /// Whether the key is between the first and the last of the block.
  func spans(_ key: CatalogKey) -> Bool {
    key.bytes.withUnsafeBytes { key in
      compareBytes(bytes(entries[0].key), key) <= 0
        && compareBytes(key, bytes(entries[entries.count - 1].key)) <= 0
    }
  }

  /// The position of the first entry whose key is not before `key`, and whether it has that key.
  func search(_ key: CatalogKey) -> (position: Int, found: Bool) {
    key.bytes.withUnsafeBytes { key in
      var low = 0
      var high = entries.count
      var found = false
      while low < high {
        let middle = (low + high) / 2
        let order = compareBytes(bytes(entries[middle].key), key)
        if order < 0 {
          low = middle + 1
        } else {
          found = order == 0
          high = middle
          if found { return (middle, true) }
        }
      }
      return (low, found)
    }
  }

  private func bytes(_ range: Range<UInt32>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: memory[Int(range.lowerBound)..<Int(range.upperBound)])
  }

  private func copy(_ range: Range<UInt32>) -> [UInt8] { [UInt8](bytes(range)) }
}
