import SodiumPrimitives

/// 16 random bytes that name a container, a session, a journal or a table.
public struct Identifier: Hashable, Sendable {
  private var first: UInt64
  private var second: UInt64

  public static let byteCount = 16
  public static let zero = Identifier(first: 0, second: 0)

  private init(first: UInt64, second: UInt64) {
    self.first = first
    self.second = second
  }

  public init(_ bytes: UnsafeRawBufferPointer) {
    precondition(bytes.count == Self.byteCount, "an identifier has 16 bytes")
    first = bytes.loadUnaligned(fromByteOffset: 0, as: UInt64.self)
    second = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
  }

  public init(_ bytes: some Sequence<UInt8>) {
    self = [UInt8](bytes).withUnsafeBytes { Identifier($0) }
  }

  /// From 32 lower-case hex digits; nil for anything else.
  public init?(hex: String) {
    let digits = Array(hex.utf8)
    guard digits.count == 2 * Self.byteCount else { return nil }
    var bytes: [UInt8] = []
    for pair in stride(from: 0, to: digits.count, by: 2) {
      var byte: UInt8 = 0
      for digit in digits[pair...(pair + 1)] {
        switch digit {
        case 48...57: byte = byte << 4 | (digit - 48)
        case 97...102: byte = byte << 4 | (digit - 87)
        default: return nil
        }
      }
      bytes.append(byte)
    }
    self.init(bytes)
  }

  public static func random() -> Identifier { Identifier(Random.bytes(byteCount)) }

  public var bytes: [UInt8] { withUnsafeBytes(of: self) { [UInt8]($0) } }

  @inline(__always)
  func store(to buffer: UnsafeMutableRawBufferPointer, at offset: Int) {
    buffer.storeBytes(of: first, toByteOffset: offset, as: UInt64.self)
    buffer.storeBytes(of: second, toByteOffset: offset + 8, as: UInt64.self)
  }

  /// Lower-case hex digits, as file names have it.
  public var hex: String {
    let digits = Array("0123456789abcdef".utf8)
    return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
  }
}

/// The 16-byte label that opens associated data and derivations: ASCII, padded with zeros.
public func label(_ text: StaticString) -> [UInt8] {
  precondition(text.utf8CodeUnitCount <= 16, "a label has at most 16 bytes")
  return text.withUTF8Buffer { Array($0) + [UInt8](repeating: 0, count: 16 - $0.count) }
}
