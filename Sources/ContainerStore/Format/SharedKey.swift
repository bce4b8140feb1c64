import SodiumPrimitives

/// A key in guarded memory that several owners share.
final class SharedKey: Sendable, Equatable {
  let key: SecretKey
  init(_ key: consuming SecretKey) { self.key = key }

  /// Of 32 bytes, which are the caller's to wipe.
  convenience init(copying bytes: some Collection<UInt8>, in pool: KeyPool = .shared) throws(CryptoError) {
    self.init(try SecretKey(in: pool) { $0.copyBytes(from: bytes) })
  }
}

extension SharedKey {
  static func == (one: SharedKey, other: SharedKey) -> Bool {
    if one === other { return true }
    // Keys that were wiped are equal to none.
    return
      (try? one.key.withUnsafeBytes { one throws(CryptoError) in
        try other.key.withUnsafeBytes { KeyedHash.equal(one, $0) }
      }) ?? false
  }
}
