/// Takes decisions off the front of an input; past its end everything is zero.
struct Input {
  private var rest: ArraySlice<UInt8>

  init(_ bytes: [UInt8]) { rest = bytes[...] }

  var isEmpty: Bool { rest.isEmpty }

  mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

  /// Little-endian.
  mutating func number<T: FixedWidthInteger & UnsignedInteger>(_ type: T.Type = T.self) -> T {
    var value: T = 0
    for shift in 0..<MemoryLayout<T>.size { value |= T(byte()) << T(8 * shift) }
    return value
  }

  /// So many bytes, or fewer at the end.
  mutating func bytes(_ count: Int) -> [UInt8] {
    defer { rest = rest.dropFirst(count) }
    return Array(rest.prefix(count))
  }

  /// A u16 and so many bytes.
  mutating func piece() -> [UInt8] { bytes(Int(number(UInt16.self))) }

  /// All that is left.
  mutating func remainder() -> [UInt8] { bytes(rest.count) }
}

/// Writes what ``Input`` reads.
struct Script {
  private(set) var bytes: [UInt8] = []

  mutating func add<T: FixedWidthInteger & UnsignedInteger>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
  }
  mutating func add(_ other: [UInt8]) { bytes += other }
  mutating func addPiece(_ piece: [UInt8]) {
    add(UInt16(piece.count))
    add(piece)
  }
}

/// A change of a few bytes at a place that the input chose; nothing for no bytes.
struct Edit {
  var position: UInt32
  var mask: [UInt8]

  init(_ input: inout Input) {
    position = input.number()
    mask = input.bytes(1 + Int(input.byte() & 7))
  }

  func apply(to bytes: inout [UInt8]) {
    guard !bytes.isEmpty else { return }
    for (i, mask) in mask.enumerated() { bytes[(Int(position) + i) % bytes.count] ^= mask }
  }
}
