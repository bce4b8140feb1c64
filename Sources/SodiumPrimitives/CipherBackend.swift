import CLibcrypto
import CSodium

/// The library that computes ChaCha20-Poly1305. Both give the same bytes.
public enum CipherBackend: String, Sendable, CaseIterable {
  case libsodium
  /// libcrypto's vectorised code for the bulk, libsodium for the rest.
  case libcrypto

  /// `libcrypto` when it is installed and agrees with libsodium in a known-answer check, made once;
  /// else `libsodium`.
  public static let preferred: CipherBackend = knownAnswersAgree() ? .libcrypto : .libsodium

  /// The version of the libcrypto that was found, for diagnosis.
  public static var libcryptoVersion: String? { clibcrypto_version().map { String(cString: $0) } }

  /// The version of libsodium, for diagnosis.
  public static var libsodiumVersion: String { String(cString: sodium_version_string()) }

  private static func knownAnswersAgree() -> Bool {
    requireSodium()
    guard clibcrypto_is_available() == 1 else { return false }
    let reference = SecretStreamCipher(.libsodium)
    let candidate = SecretStreamCipher(.libcrypto)
    guard candidate.backend == .libcrypto else { return false }
    return [256, 264, 1024, 4104, 16384, 16392].allSatisfy { count in
      let key = KeyedHash.checksum(UnsafeRawBufferPointer(start: nil, count: 0), count: 32)
      let message = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ count) }
      let header = Array(message[0..<24])
      let ad = Array(message[24..<48])
      let expected = reference.seal(message, key: key, header: header, ad: ad)
      var damaged = expected
      damaged[count / 2] ^= 1
      return candidate.seal(message, key: key, header: header, ad: ad) == expected
        && (try? candidate.open(expected, key: key, ad: ad)) == message
        && (try? candidate.open(damaged, key: key, ad: ad)) == nil
    }
  }
}
