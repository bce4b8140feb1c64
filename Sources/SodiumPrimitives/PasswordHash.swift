import CSodium

/// Argon2id version 1.3 (`crypto_pwhash`), one lane.
public enum PasswordHash {
  public struct Parameters: Hashable, Sendable {
    public var passes: UInt32
    public var memoryKiB: UInt32

    public init(passes: UInt32, memoryKiB: UInt32) {
      self.passes = passes
      self.memoryKiB = memoryKiB
    }

    /// 3 passes over 64 MiB.
    public static let standard = Parameters(passes: 3, memoryKiB: 64 * 1024)
  }

  public static let saltByteCount = 16

  /// A 32-byte key; takes the memory and the time that the parameters say. Throws
  /// ``CryptoError/passwordHashOutOfMemory(byteCount:)``.
  public static func key(
    passphrase: borrowing SecretBytes, salt: [UInt8], parameters: Parameters
  ) throws(CryptoError) -> SecretKey {
    requireSodium()
    precondition(
      parameters.passes >= 1 && parameters.memoryKiB >= 8, "Argon2id takes at least 1 pass and 8 KiB")
    precondition(salt.count == saltByteCount, "Argon2id takes a salt of 16 bytes")
    let memory = Int(parameters.memoryKiB) * 1024
    var status: Int32 = 0
    let key = try passphrase.withUnsafeBytes { secret throws(CryptoError) in
      try SecretKey { output in
        status = crypto_pwhash(
          output.bytePointer, UInt64(output.count),
          secret.baseAddress!.assumingMemoryBound(to: CChar.self), UInt64(secret.count), salt,
          UInt64(parameters.passes), memory, crypto_pwhash_ALG_ARGON2ID13)
        wipeStack(8192)
      }
    }
    guard status == 0 else { throw .passwordHashOutOfMemory(byteCount: memory) }
    return key
  }
}
