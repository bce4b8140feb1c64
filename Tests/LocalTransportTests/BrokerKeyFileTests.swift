import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import LocalTransport

/// The broker's public key in its file, and private keys that are kept.
struct BrokerKeyFileTests {
  let folder = TemporaryDirectory()
  private var socket: String { folder["broker"] }

  private func write(_ contents: Data) throws {
    try contents.write(to: URL(filePath: BrokerKeyFile.path(besideSocket: socket)))
  }

  @Test func isBesideTheSocket() {
    #expect(BrokerKeyFile.path(besideSocket: "/run/broker") == "/run/broker.key.pub")
  }

  @Test func hasTheKeyInHexadecimalAndANewline() throws {
    let key = Data((0..<32).map { UInt8($0 * 8 + 7) })
    let text = "070f171f272f373f474f575f676f777f878f979fa7afb7bfc7cfd7dfe7eff7ff\n"
    #expect(BrokerKeyFile.contents(key) == Data(text.utf8))
    try write(Data(text.utf8))
    #expect(BrokerKeyFile.read(besideSocket: socket) == key)
  }

  @Test func comesBackFromItsFile() throws {
    for _ in 0..<20 {
      let key = try KeyPair().publicKey
      try write(BrokerKeyFile.contents(key))
      #expect(BrokerKeyFile.read(besideSocket: socket) == Data(key))
    }
  }

  @Test func isNilWithoutAFile() throws {
    #expect(BrokerKeyFile.read(besideSocket: socket) == nil)
    // Nobody writes into it: reading must not wait for that.
    #expect(mkfifo(BrokerKeyFile.path(besideSocket: socket), 0o600) == 0)
    #expect(BrokerKeyFile.read(besideSocket: socket) == nil)
  }

  @Test func isReplacedAsAWhole() throws {
    for _ in 0..<2 {
      let key = try KeyPair().publicKey
      try BrokerKeyFile.write(key, besideSocket: socket)
      #expect(BrokerKeyFile.read(besideSocket: socket) == Data(key))
    }
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    #expect(names == ["broker.key.pub"])
  }

  private static let zeros = String(repeating: "0", count: 64)

  /// What stands before so many zeros, and after them.
  static let others: [(String, Int, String)] = [
    ("", 0, ""), ("", 0, "\n"), ("", 64, ""), ("", 63, "\n"), ("", 64, "0\n"), ("", 64, "\r\n"),
    ("", 64, "\n\n"),
    ("", 64, " "), ("\n", 64, ""), ("", 63, "A\n"), ("", 63, "g\n"), ("", 63, "/\n"), ("", 63, ":\n"),
    ("", 63, "`\n"), ("", 62, "0x\n"), ("", 62, "é\n"), ("0x", 62, "\n"), ("+1", 62, "\n"), (" ", 63, "\n"),
  ]

  @Test(arguments: others.map { before, count, after in before + zeros.prefix(count) + after })
  func isNilForAnythingElse(text: String) throws {
    try write(Data(text.utf8))
    #expect(BrokerKeyFile.read(besideSocket: socket) == nil)
  }

  // MARK: Private keys

  @Test func aPrivateKeyThatWasKeptIsTheSameKey() throws {
    let pair = try KeyPair()
    let bytes = try pair.kept
    #expect(bytes.count == 32)
    let kept = try KeyPair(kept: bytes)
    let again = try #require(kept)
    #expect(try again.publicKey == pair.publicKey && again.kept == bytes)
  }

  @Test(arguments: [0, 1, 31, 33, 64]) func keepsNoKeyOfAnotherLength(byteCount: Int) throws {
    let key = try KeyPair(kept: Data(count: byteCount))
    #expect(key == nil)
  }
}
