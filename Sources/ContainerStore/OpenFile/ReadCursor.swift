import EncryptedFile
import SodiumPrimitives

/// The state that a handle keeps between reads.
struct ReadCursor: Sendable {
  var opened = OpenedSegment()
  /// The offset at which the last read ended.
  private var end: UInt64?
  /// The number of bytes that were read sequentially.
  private var byteCountInOrder: UInt64 = 0
  private var units: [UnitAhead] = []
  /// Units with free memory.
  private var spares: [UnitAhead] = []

  /// The number of sequential bytes that starts the read-ahead: from here on, the file is likely to
  /// be read to its end.
  private static let byteCountMin: UInt64 = 256 << 10
  private static let unitCountMax = 3

  /// Begins a read; if it is not sequential, the units opened ahead are discarded.
  mutating func begin(at offset: UInt64, count: Int) {
    if offset != end { byteCountInOrder = 0 }
    byteCountInOrder += UInt64(count)
    if byteCountInOrder == UInt64(count) { (units, spares) = ([], []) }
  }

  /// Copies bytes that were opened ahead; nil if there are none at `position`.
  mutating func copy(from position: UInt64, into target: UnsafeMutableRawBufferPointer) -> Int? {
    while let unit = units.first, unit.offset + UInt64(UnitAhead.byteCount) <= position { spare() }
    guard let unit = units.first, unit.offset <= position else { return nil }
    let count = unit.copy(from: position, into: target)
    if count == nil { while !units.isEmpty { spare() } }
    return count
  }

  private mutating func spare() { spares.append(units.removeFirst()) }

  /// Ends a read at `position`, and starts to open the next units.
  mutating func end(at position: UInt64, of node: FileNode, in store: Store) {
    end = position
    guard byteCountInOrder >= Self.byteCountMin else { return }
    let size = node.size
    // The caller's offset may be past the end of the file.
    guard position < size else {
      while !units.isEmpty { spare() }
      return
    }
    let unitByteCount = UInt64(UnitAhead.byteCount)
    while let unit = units.first, unit.offset + unitByteCount <= position { spare() }
    // Start with the next whole unit: the caller itself reads the rest of a unit that was not
    // opened ahead.
    var next =
      units.last.map { $0.offset + unitByteCount }
      ?? (position + unitByteCount - 1) / unitByteCount * unitByteCount
    while units.count < Self.unitCountMax, next < size, !store.isClosed {
      if let unit = spares.popLast() {
        unit.begin(at: next)
        units.append(unit)
      } else {
        units.append(UnitAhead(node, at: next, of: store))
      }
      next += unitByteCount
    }
  }

  /// Wipes the memory, and waits for units that are being opened.
  mutating func clear() {
    opened.wipeBytes()
    (units, spares) = ([], [])
    end = nil
  }
}
