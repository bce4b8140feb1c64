package import Foundation
import SodiumPrimitives

/// What people compare of a public key.
package enum KeyFingerprint {
  package static let byteCount = 16
  /// Padded to 16 bytes.
  private static let label = Array("OD1-fingerprint".utf8) + [0]

  /// The first 16 bytes of BLAKE2b(32 bytes, label ‖ public key).
  package static func of(_ publicKey: Data) -> Data {
    Data((label + publicKey).withUnsafeBytes { KeyedHash.checksum($0, count: 32) }.prefix(byteCount))
  }

  /// A fingerprint as people read it: hexadecimal digits in groups of four.
  package static func text(_ fingerprint: Data) -> String {
    let digits = Array(Hexadecimal.text(fingerprint))
    return stride(from: 0, to: digits.count, by: 4).map {
      String(digits[$0..<min($0 + 4, digits.count)])
    }.joined(separator: " ")
  }

  package static func text(of publicKey: Data) -> String { text(of(publicKey)) }

  /// The bytes of a fingerprint that somebody typed: blanks and capitals do not count. Nil for anything
  /// that is no whole fingerprint.
  package static func bytes(_ text: String) -> Data? {
    let digits = text.utf8.filter { $0 != UInt8(ascii: " ") }.map { byte in
      (UInt8(ascii: "A")...UInt8(ascii: "F")).contains(byte) ? byte + 32 : byte
    }
    return Hexadecimal.bytes(digits).flatMap { $0.count == byteCount ? Data($0) : nil }
  }
}
