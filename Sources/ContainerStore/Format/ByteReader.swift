import EncryptedFile
import SodiumPrimitives

/// Bytes that do not have the layout of the format page.
struct MalformedBytes: Error {
  var what: String
}

/// Reads fields from the front, and checks every length before using it.
struct ByteReader {
  private let bytes: ArraySlice<UInt8>
  private(set) var position: Int

  init(_ bytes: [UInt8]) { self.init(bytes[...]) }

  init(_ bytes: ArraySlice<UInt8>) {
    self.bytes = bytes
    position = bytes.startIndex
  }

  var remaining: Int { bytes.endIndex - position }

  mutating func read<T: FixedWidthInteger>(_ type: T.Type = T.self) throws(MalformedBytes) -> T {
    var value: T = 0
    let slice = try take(MemoryLayout<T>.size)
    withUnsafeMutableBytes(of: &value) { $0.copyBytes(from: slice) }
    return T(littleEndian: value)
  }

  /// Reads a number in its shortest form only, so that encoding it again gives the same bytes.
  mutating func varint() throws(MalformedBytes) -> UInt64 {
    var value: UInt64 = 0
    for i in 0..<10 {
      let byte = try read(UInt8.self)
      guard i < 9 || byte <= 1, i == 0 || byte != 0 else {
        throw MalformedBytes(what: "a number in a form that is not its own")
      }
      value |= UInt64(byte & 0x7f) << UInt64(7 * i)
      if byte < 0x80 { return value }
    }
    throw MalformedBytes(what: "a number that does not end")
  }

  mutating func varint32() throws(MalformedBytes) -> UInt32 {
    guard let value = UInt32(exactly: try varint()) else {
      throw MalformedBytes(what: "a number over 32 bits")
    }
    return value
  }

  mutating func difference(from base: Int64) throws(MalformedBytes) -> Int64 {
    let raw = try varint()
    return base &+ Int64(bitPattern: raw >> 1 ^ (0 &- (raw & 1)))
  }

  mutating func take(_ count: Int) throws(MalformedBytes) -> ArraySlice<UInt8> {
    guard count >= 0, count <= remaining else { throw MalformedBytes(what: "fields end too early") }
    defer { position += count }
    return bytes[position..<(position + count)]
  }

  mutating func bytes(_ count: Int) throws(MalformedBytes) -> [UInt8] { [UInt8](try take(count)) }
  mutating func identifier() throws(MalformedBytes) -> Identifier {
    try take(Identifier.byteCount).withUnsafeBytes { Identifier($0) }
  }

  mutating func zeros(_ count: Int) throws(MalformedBytes) {
    guard try take(count).allSatisfy({ $0 == 0 }) else {
      throw MalformedBytes(what: "reserved bytes are not zero")
    }
  }

  func end() throws(MalformedBytes) {
    guard remaining == 0 else { throw MalformedBytes(what: "\(remaining) bytes too many") }
  }
}
