import CSodium

/// SHA-256 and its HMAC, for other programs that have no BLAKE2b: a browser.
public enum SHA256 {
  /// The 32 bytes of the hash.
  public static func hash(_ data: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Int(crypto_hash_sha256_BYTES)) { buffer, count in
      count = Int(crypto_hash_sha256_BYTES)
      crypto_hash_sha256(buffer.baseAddress!, data, UInt64(data.count))
    }
  }

  /// HMAC-SHA-256 (RFC 2104): 32 bytes. The key has any length.
  public static func authenticate(_ data: [UInt8], key: [UInt8]) -> [UInt8] {
    var state = crypto_auth_hmacsha256_state()
    crypto_auth_hmacsha256_init(&state, key, key.count)
    crypto_auth_hmacsha256_update(&state, data, UInt64(data.count))
    return [UInt8](unsafeUninitializedCapacity: Int(crypto_auth_hmacsha256_BYTES)) { buffer, count in
      count = Int(crypto_auth_hmacsha256_BYTES)
      crypto_auth_hmacsha256_final(&state, buffer.baseAddress!)
    }
  }
}
