/// 16 random bytes that name something: a container, a session, a message, a request, a process, a push channel.
/// Identifiers are ordered as their bytes.
public struct Identifier: Hashable, Sendable {
  public static let byteCount = 16
  public static let zero = Identifier(high: 0, low: 0)

  /// The bytes as two numbers, the first byte being the highest.
  private let high: UInt64
  private let low: UInt64

  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  public init(_ bytes: UnsafeRawBufferPointer) {
    precondition(bytes.count == Self.byteCount, "an identifier has 16 bytes")
    high = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 0, as: UInt64.self))
    low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
  }

  /// Requires 16 bytes.
  public init(_ bytes: some Sequence<UInt8>) {
    self = [UInt8](bytes).withUnsafeBytes { Identifier($0) }
  }

  /// Nil for anything but 16 bytes.
  public init?(exactly bytes: some Collection<UInt8>) {
    guard bytes.count == Self.byteCount else { return nil }
    self.init(bytes)
  }

  /// From the system's generator.
  public static func random() -> Identifier {
    var generator = SystemRandomNumberGenerator()
    return Identifier(high: generator.next(), low: generator.next())
  }

  public var bytes: [UInt8] { withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { [UInt8]($0) } }

  package func store(to buffer: UnsafeMutableRawBufferPointer, at offset: Int) {
    buffer.storeBytes(of: high.bigEndian, toByteOffset: offset, as: UInt64.self)
    buffer.storeBytes(of: low.bigEndian, toByteOffset: offset + 8, as: UInt64.self)
  }

  /// 32 hexadecimal digits in lower case.
  public var hex: String { Hexadecimal.text(bytes) }

  /// From 32 hexadecimal digits in lower case; nil for anything else.
  public init?(hex: some StringProtocol) {
    guard let bytes = Hexadecimal.bytes(hex.utf8), bytes.count == Self.byteCount else { return nil }
    self.init(bytes)
  }
}

extension Identifier: Comparable {
  public static func < (left: Identifier, right: Identifier) -> Bool {
    (left.high, left.low) < (right.high, right.low)
  }
}

extension Identifier: LosslessStringConvertible {
  public var description: String { hex }

  public init?(_ description: String) { self.init(hex: description) }
}

extension Identifier: Codable {
  /// Reads the 32 hexadecimal digits that ``encode(to:)`` writes.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let identifier = Identifier(hex: try container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(
        in: container, debugDescription: "an identifier has 32 hexadecimal digits in lower case")
    }
    self = identifier
  }

  /// Writes 32 hexadecimal digits.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(hex)
  }
}
