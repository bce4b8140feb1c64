import EncryptedFile
import SodiumPrimitives

/// Appends the little-endian fields of the format page.
struct ByteWriter {
  private(set) var bytes: [UInt8] = []

  mutating func append<T: FixedWidthInteger>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
  }

  mutating func append(_ other: some Sequence<UInt8>) { bytes.append(contentsOf: other) }
  mutating func append(_ identifier: Identifier) { bytes.append(contentsOf: identifier.bytes) }

  /// Appends a number with seven bits per byte, the lowest first.
  mutating func append(varint value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    bytes.append(UInt8(rest))
  }

  /// Appends `value` as its distance from `base`; small distances of either sign are short.
  mutating func append(difference value: Int64, from base: Int64) {
    let distance = value &- base
    append(varint: UInt64(bitPattern: (distance << 1) ^ (distance >> 63)))
  }

  mutating func reserve(_ count: Int) { bytes.reserveCapacity(count) }
  mutating func removeAll() { bytes.removeAll(keepingCapacity: true) }

  mutating func appendZeros(_ count: Int) { bytes.append(contentsOf: repeatElement(0, count: count)) }

  /// Appends zeros up to a size that the layout fixes.
  mutating func pad(to count: Int) {
    precondition(bytes.count <= count, "the layout has \(count) bytes")
    appendZeros(count - bytes.count)
  }
}
