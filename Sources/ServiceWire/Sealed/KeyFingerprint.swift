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
}
