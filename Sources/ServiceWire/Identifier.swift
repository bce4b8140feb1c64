package import Foundation

/// 16 random bytes that name a request, a delivery or a process.
package struct WireID: Hashable, Sendable, Comparable, CustomStringConvertible {
  private let high: UInt64
  private let low: UInt64

  package static let byteCount = 16

  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Nil for anything but 16 bytes.
  package init?(_ bytes: Data) {
    guard bytes.count == Self.byteCount else { return nil }
    (high, low) = bytes.withUnsafeBytes { bytes in
      (
        UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
        UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      )
    }
  }

  /// From the system's random numbers, which are those of the kernel.
  package static func random() -> WireID {
    var generator = SystemRandomNumberGenerator()
    return WireID(high: generator.next(), low: generator.next())
  }

  package var bytes: Data {
    withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Data($0) }
  }

  /// 32 hexadecimal digits.
  package var description: String {
    [high, low].map { word in
      let digits = String(word, radix: 16)
      return String(repeating: "0", count: 16 - digits.count) + digits
    }.joined()
  }

  /// From 32 hexadecimal digits.
  package init?(text: some StringProtocol) {
    let digits = Array(text.utf8)
    guard digits.count == 32, digits.allSatisfy({ ($0 >= 48 && $0 < 58) || ($0 >= 97 && $0 < 103) }),
      let high = UInt64(String(decoding: digits[..<16], as: UTF8.self), radix: 16),
      let low = UInt64(String(decoding: digits[16...], as: UTF8.self), radix: 16)
    else { return nil }
    self.init(high: high, low: low)
  }

  package static func < (left: WireID, right: WireID) -> Bool {
    (left.high, left.low) < (right.high, right.low)
  }
}
