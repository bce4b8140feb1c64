package import Foundation
package import SodiumPrimitives

/// The file beside the broker's socket that has its public key: 64 hexadecimal digits and a newline.
package enum BrokerKeyFile {
  package static func path(besideSocket path: String) -> String { path + ".key.pub" }

  package static func contents(_ publicKey: some Sequence<UInt8>) -> Data {
    Data((publicKey.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "\n").utf8)
  }

  /// The key; nil when there is no such file, or something else in it.
  package static func read(besideSocket path: String) -> Data? {
    guard let bytes = FileManager.default.contents(atPath: Self.path(besideSocket: path)),
      bytes.count == 2 * KeyPair.byteCount + 1, bytes.last == UInt8(ascii: "\n")
    else { return nil }
    var key = Data()
    for i in stride(from: 0, to: 2 * KeyPair.byteCount, by: 2) {
      guard let high = digit(bytes[i]), let low = digit(bytes[i + 1]) else { return nil }
      key.append(high << 4 | low)
    }
    return key
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    default: nil
    }
  }
}

extension KeyPair {
  /// The pair of a private key that was kept. Nil when it has not 32 bytes; throws
  /// `secretMemoryExhausted`.
  package convenience init?(kept bytes: Data) throws(CryptoError) {
    guard bytes.count == Self.byteCount else { return nil }
    let copy = [UInt8](bytes)
    try self.init(copying: copy)
  }

  /// The private key, for the container or the state directory of its owner, and for nobody else.
  package var kept: Data { withPrivateKey { Data($0) } }
}
