import SodiumPrimitives

/// One name in a directory: 1 to 255 exact bytes, compared byte by byte, never normalised.
public struct FileName: Hashable, Comparable, Sendable, CustomStringConvertible {
  public let bytes: [UInt8]

  public static let byteCountMax = 255

  /// Returns nil when the name is empty, too long, `.` or `..`, or contains a slash or NUL.
  public init?(bytes: [UInt8]) {
    guard !bytes.isEmpty, bytes.count <= Self.byteCountMax, bytes != [0x2e], bytes != [0x2e, 0x2e],
      !bytes.contains(0x2f), !bytes.contains(0)
    else { return nil }
    self.bytes = bytes
  }

  public init?(_ string: String) { self.init(bytes: Array(string.utf8)) }

  public var description: String { String(decoding: bytes, as: UTF8.self) }

  /// The name in the native file system: what is not UTF-8, which programs for it may not take, has its bytes from 128 on and its percent
  /// signs as %XX.
  var native: (text: String, isEscaped: Bool) {
    if let text = String(validating: bytes, as: UTF8.self) { return (text, false) }
    let text = bytes.map { byte in
      byte < 0x80 && byte != UInt8(ascii: "%")
        ? String(UnicodeScalar(byte)) : "%" + Hexadecimal.text([byte]).uppercased()
    }
    return (text.joined(), true)
  }

  public static func < (a: FileName, b: FileName) -> Bool { a.bytes.lexicographicallyPrecedes(b.bytes) }

  /// The maximum number of names in one path of a message.
  static let depthMax = 128

  /// Whether the path consists of names with slashes between them, at most ``depthMax``.
  static func areNames(_ path: ArraySlice<UInt8>) -> Bool {
    let names = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    return names.count <= depthMax && names.allSatisfy { FileName(bytes: Array($0)) != nil }
  }
}
