package import Foundation
package import SodiumPrimitives

extension KeyPair {
  /// The pair of a private key that was kept. Nil when it does not have 32 bytes; throws
  /// `secretMemoryExhausted`.
  package convenience init?(kept bytes: Data) throws(CryptoError) {
    guard bytes.count == Self.byteCount else { return nil }
    try self.init(copying: bytes)
  }

  /// The private key, for the container or the state directory of its owner, and for nobody else.
  package var kept: Data {
    get throws(CryptoError) { try withPrivateKey { Data($0) } }
  }
}
