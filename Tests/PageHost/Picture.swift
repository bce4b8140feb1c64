import Foundation

/// Icons for apps.
enum Picture {
  /// A PNG of a disk in a colour.
  static func disk(_ red: UInt8, _ green: UInt8, _ blue: UInt8, size: Int = 64) -> Data {
    var pixels: [UInt8] = []
    for y in 0..<size {
      pixels.append(0)
      for x in 0..<size {
        let (dx, dy) = (2 * x + 1 - size, 2 * y + 1 - size)
        let isInside = dx * dx + dy * dy < size * size
        let isCore = 4 * (dx * dx + dy * dy) < size * size
        pixels += isCore ? [255, 255, 255, 255] : isInside ? [red, green, blue, 255] : [0, 0, 0, 0]
      }
    }
    var data = Data([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
    data += chunk("IHDR", big(UInt32(size)) + big(UInt32(size)) + [8, 6, 0, 0, 0])
    data += chunk("IDAT", stored(pixels))
    data += chunk("IEND", [])
    return data
  }

  private static func big(_ number: UInt32) -> [UInt8] {
    (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) }
  }

  private static func chunk(_ name: String, _ bytes: [UInt8]) -> [UInt8] {
    let named = Array(name.utf8) + bytes
    var sum: UInt32 = .max
    for byte in named {
      sum ^= UInt32(byte)
      for _ in 0..<8 { sum = sum & 1 == 0 ? sum >> 1 : sum >> 1 ^ 0xEDB8_8320 }
    }
    return big(UInt32(bytes.count)) + named + big(~sum)
  }

  /// zlib's format without compression.
  private static func stored(_ bytes: [UInt8]) -> [UInt8] {
    var out: [UInt8] = [0x78, 0x01]
    var (a, b) = (UInt32(1), UInt32(0))
    for byte in bytes { (a, b) = ((a + UInt32(byte)) % 65521, (b + a + UInt32(byte)) % 65521) }
    for start in stride(from: 0, to: bytes.count, by: 65535) {
      let part = bytes[start..<min(start + 65535, bytes.count)]
      let (low, high) = (UInt8(part.count & 255), UInt8(part.count >> 8))
      out += [start + part.count == bytes.count ? 1 : 0, low, high, ~low, ~high] + part
    }
    return out + big(b << 16 | a)
  }
}
