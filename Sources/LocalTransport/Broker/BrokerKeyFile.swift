package import Foundation
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Why a broker that answers cannot be talked to.
package enum BrokerKeyError: Error, Equatable {
  /// No file with a public key is at the path.
  case missing(path: String)
}

extension BrokerKeyError: CustomStringConvertible {
  /// What failed.
  package var what: String {
    switch self {
    case .missing(let path): "a broker answers, and its public key is not in \(path)"
    }
  }

  /// What to do.
  package var remedy: String { "start the broker anew: it writes the file when it starts" }

  package var description: String { what + "; " + remedy }
}

/// The file beside the broker's socket that has its public key: 64 hexadecimal digits and a newline.
package enum BrokerKeyFile {
  package static func path(besideSocket path: String) -> String { path + ".key.pub" }

  package static func contents(_ publicKey: some Sequence<UInt8>) -> Data {
    Data((Hexadecimal.text(publicKey) + "\n").utf8)
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
    return Hexadecimal.bytes(bytes.dropLast()).map { Data($0) }
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
}
