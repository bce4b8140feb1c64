import Foundation
import SecureFiles
import SodiumPrimitives

/// A person's password and the one that takes its place.
struct Passwords: ~Copyable {
  private let old: SecretBytes
  private let new: SecretBytes

  /// Hashes of former passwords, the newest first: one PHC string a line. Only an open container shows them.
  private static let historyPath = "/.opendynamics/passwords"
  private static let parameters = PasswordHash.Parameters(passes: 1, memoryKiB: 8 << 10)

  init(old: consuming SecretBytes, new: consuming SecretBytes) {
    self.old = old
    self.new = new
  }

  /// Replaces the key slot of the old password. Throws `wrongKey`, and a breach of the rules for one of the last passwords. Returns the
  /// error of a history that could not be written: the password is replaced all the same. Blocks.
  func replace(in container: SecureContainer, history: Int?) throws -> (any Error)? {
    let store = container.store
    if let history {
      for hash in try former(in: container).prefix(history - 1) where try hash.isHash(of: new) {
        throw PasswordRules.Breach.usedBefore(history: history)
      }
      if old.withUnsafeBytes({ old in new.withUnsafeBytes { KeyedHash.equal(old, $0) } }) {
        throw PasswordRules.Breach.usedBefore(history: history)
      }
    }
    try store.replaceKey(.passphrase(old.copy()), with: .passphrase(new.copy()))
    guard let history else { return nil }
    do {
      let hashes = [try SecretHash(hashing: old, parameters: Self.parameters)] + (try former(in: container))
      let text = hashes.prefix(history).map(\.text).joined(separator: "\n")
      try container.files.write(Data(text.utf8), toPath: Self.historyPath)
      try container.synchronize()
      return nil
    } catch {
      return error
    }
  }

  private func former(in container: SecureContainer) throws -> [SecretHash] {
    guard container.files.fileExists(atPath: Self.historyPath) else { return [] }
    let text = String(decoding: try container.files.data(atPath: Self.historyPath), as: UTF8.self)
    return text.split(separator: "\n").compactMap { SecretHash(String($0)) }
  }
}
