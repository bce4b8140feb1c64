import Foundation
import SecureFiles
import SodiumPrimitives

/// A person's password and the one that takes its place.
struct Passwords: ~Copyable {
  private let old: SecretBytes
  private let new: SecretBytes

  /// Of hashes that only an open container shows.
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
      // Else who does not know the password could try which ones came before.
      guard try store.holds(.passphrase(old.copy())) else { throw ContainerError(.wrongKey) }
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
      try RuntimeFile.passwords.write(text, in: container.store)
      return nil
    } catch {
      return error
    }
  }

  private func former(in container: SecureContainer) throws -> [SecretHash] {
    let text = try RuntimeFile.passwords.text(in: container.store) ?? ""
    return text.split(separator: "\n").compactMap { SecretHash(String($0)) }
  }
}
