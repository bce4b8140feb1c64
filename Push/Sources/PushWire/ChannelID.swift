package import Foundation

/// The 16 random bytes by which device and relay name a channel.
package struct ChannelID: Hashable, Sendable, CustomStringConvertible {
  package static let byteCount = 16

  private let high: UInt64
  private let low: UInt64

  package static func random() -> ChannelID {
    var generator = SystemRandomNumberGenerator()
    return ChannelID(high: generator.next(), low: generator.next())
  }

  private init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Returns nil unless there are 16 bytes.
  package init?(_ bytes: Data) {
    guard bytes.count == Self.byteCount else { return nil }
    (high, low) = bytes.withUnsafeBytes { bytes in
      (
        UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
        UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      )
    }
  }

  package var bytes: Data {
    withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Data($0) }
  }

  /// 32 hexadecimal digits.
  package var description: String {
    bytes.map { byte in
      let digits = String(byte, radix: 16)
      return digits.count == 2 ? digits : "0" + digits
    }.joined()
  }
}
