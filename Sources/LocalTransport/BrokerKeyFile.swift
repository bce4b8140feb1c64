package import Foundation
package import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The file beside the broker's socket that has its public key: 64 hexadecimal digits and a newline.
package enum BrokerKeyFile {
  package static func path(besideSocket path: String) -> String { path + ".key.pub" }

  package static func contents(_ publicKey: some Sequence<UInt8>) -> Data {
    Data((publicKey.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "\n").utf8)
  }

  /// Replaces the file as a whole. It is written anew at each start of the broker, so it need not be durable.
  package static func write(_ publicKey: some Sequence<UInt8>, besideSocket path: String) throws {
    try contents(publicKey).write(to: URL(filePath: Self.path(besideSocket: path)), options: .atomic)
  }

  /// The key; nil when there is no such file, or something else in it. Does not block.
  package static func read(besideSocket path: String) -> Data? {
    let byteCount = 2 * KeyPair.byteCount + 1
    guard let bytes = firstBytes(of: Self.path(besideSocket: path), byteCount + 1), bytes.count == byteCount,
      bytes.last == UInt8(ascii: "\n")
    else { return nil }
    var key = Data()
    for i in stride(from: 0, to: 2 * KeyPair.byteCount, by: 2) {
      guard let high = digit(bytes[i]), let low = digit(bytes[i + 1]) else { return nil }
      key.append(high << 4 | low)
    }
    return key
  }

  /// Of a regular file; whatever else the path may be.
  private static func firstBytes(of path: String, _ byteCountMax: Int) -> [UInt8]? {
    let file = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var status = stat()
    guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
    var bytes = [UInt8](repeating: 0, count: byteCountMax)
    let count = pread(file, &bytes, byteCountMax, 0)
    return count < 0 ? nil : Array(bytes.prefix(count))
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
  /// The pair of a private key that was kept. Nil when it does not have 32 bytes; throws
  /// `secretMemoryExhausted`.
  package convenience init?(kept bytes: Data) throws(CryptoError) {
    guard bytes.count == Self.byteCount else { return nil }
    var copy = [UInt8](bytes)
    defer { copy.withUnsafeMutableBytes { wipe($0) } }
    try self.init(copying: copy)
  }

  /// The private key, for the container or the state directory of its owner, and for nobody else.
  package var kept: Data { withPrivateKey { Data($0) } }
}
