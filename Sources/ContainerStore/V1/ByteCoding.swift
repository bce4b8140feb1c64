import EncryptedFile

/// Bytes that do not have the shape that the format page gives them.
struct MalformedBytes: Error {
  var what: String
}

/// Appends the little-endian fields of the format page.
struct ByteWriter {
  private(set) var bytes: [UInt8] = []

  mutating func append<T: FixedWidthInteger>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
  }

  mutating func append(_ other: some Sequence<UInt8>) { bytes.append(contentsOf: other) }
  mutating func append(_ identifier: Identifier) { bytes.append(contentsOf: identifier.bytes) }

  mutating func appendZeros(_ count: Int) { bytes.append(contentsOf: repeatElement(0, count: count)) }

  /// Zeros up to a size that a layout fixes.
  mutating func pad(to count: Int) {
    precondition(bytes.count <= count, "the layout has \(count) bytes")
    appendZeros(count - bytes.count)
  }
}

/// Takes fields off the front, checking every length before it is used.
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

  mutating func take(_ count: Int) throws(MalformedBytes) -> ArraySlice<UInt8> {
    guard count >= 0, count <= remaining else { throw MalformedBytes(what: "fields end too early") }
    defer { position += count }
    return bytes[position..<(position + count)]
  }

  mutating func bytes(_ count: Int) throws(MalformedBytes) -> [UInt8] { [UInt8](try take(count)) }
  mutating func identifier() throws(MalformedBytes) -> Identifier {
    Identifier(try take(Identifier.byteCount))
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
