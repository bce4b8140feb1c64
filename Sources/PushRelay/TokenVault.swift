internal import Crypto
package import Foundation
package import PushWire

/// The relay's key: it seals tokens for the database. Source: PUSH-PROTOCOL.md, *Tokens*.
package struct TokenVault: Sendable {
  package static let keyByteCount = 32

  private let key: SymmetricKey

  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  /// A vault with a key of 32 bytes.
  package init(key: Data) {
    precondition(key.count == Self.keyByteCount, "a file's key is looked at first")
    self.key = SymmetricKey(data: key)
  }

  /// The vault whose key is in a file. Makes the file, readable for its owner alone, if there is none.
  package init(keyFile path: String) throws {
    if !FileManager.default.fileExists(atPath: path) {
      try Self.makeKeyFile(path)
    }
    guard let key = FileManager.default.contents(atPath: path) else {
      throw Failure(description: "the key file \(path) cannot be read")
    }
    guard key.count == Self.keyByteCount else {
      throw Failure(
        description: "the key file \(path) has \(key.count) bytes; it must have \(Self.keyByteCount)")
    }
    self.init(key: key)
  }

  /// The file is whole under its name, or it is not there.
  private static func makeKeyFile(_ path: String) throws {
    let part = path + ".part"
    let key = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) }
    try? FileManager.default.removeItem(atPath: part)
    guard
      FileManager.default.createFile(
        atPath: part, contents: nil, attributes: [.posixPermissions: 0o600]),
      let file = FileHandle(forWritingAtPath: part)
    else { throw Failure(description: "the key file \(path) cannot be made") }
    try file.write(contentsOf: key)
    try file.synchronize()
    try file.close()
    try FileManager.default.moveItem(atPath: part, toPath: path)
  }

  /// A token as the store keeps it.
  package func stored(_ token: PushToken) -> StoredToken {
    StoredToken(
      prefix: token.prefix, tokenHash: Self.hash(token.text), secretHash: Self.hash(token.secret),
      sealed: seal(token.text))
  }

  private func seal(_ text: String) -> Data {
    // AES-GCM takes every text of this length, with a nonce of its own.
    guard let sealed = try? AES.GCM.seal(Data(text.utf8), using: key).combined else {
      preconditionFailure("a token cannot be sealed")
    }
    return sealed
  }

  /// The token that was sealed. Throws when the key is another one or the bytes are damaged.
  package func open(_ sealed: Data) throws -> String {
    do {
      return String(
        decoding: try AES.GCM.open(AES.GCM.SealedBox(combined: sealed), using: key), as: UTF8.self)
    } catch {
      throw StoreFailure(description: "a token cannot be read: the relay's key is another one than before")
    }
  }

  /// Throws when the tokens of a store were sealed with another key.
  package func check(_ store: any PushStore) async throws {
    guard let sealed = try await store.anyToken(), (try? open(sealed)) == nil else { return }
    throw Failure(
      description:
        "the relay's key is not the one with which its database was written: put relay.key back, or delete the database, which ends all channels"
    )
  }

  /// SHA-256 of a token or of its secret.
  package static func hash(_ text: String) -> Data { Data(SHA256.hash(data: Data(text.utf8))) }

  /// The name under which the store knows a device.
  package static func key(ofDevice secret: Data) -> DeviceKey {
    DeviceKey(hash: Data(SHA256.hash(data: secret)))
  }
}
