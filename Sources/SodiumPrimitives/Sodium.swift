import CSodium
@_exported public import Identifiers

/// Whether libsodium set itself up; true on every machine that has a source of random bytes.
private let sodiumIsReady = sodium_init() >= 0

/// Sets libsodium up once; every entry point of this module that allocates or draws random bytes
/// calls it.
@inline(__always)
func requireSodium() {
  precondition(sodiumIsReady, "libsodium could not be initialised: the machine has no source of random bytes")
}

/// What a primitive refuses.
public enum CryptoError: Error, Equatable, Sendable {
  /// The authenticator does not match: the bytes, the key or the associated data are not those that
  /// were sealed.
  case notAuthentic
  /// Shorter than the smallest sealed message.
  case tooShort(byteCount: Int, minimum: Int)
  /// Argon2id could not get the memory it needs.
  case passwordHashOutOfMemory(byteCount: Int)
  /// Guarded memory could not be allocated or locked (see `RLIMIT_MEMLOCK`).
  case secretMemoryExhausted(byteCount: Int)
  /// The keys were wiped, because what they belong to was closed (``KeyPool/shut()``).
  case keysWiped
  /// libcrypto failed where libsodium would not have.
  case libcryptoFailed
}

extension CryptoError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .notAuthentic:
      "not authentic: the bytes, the key or the place are not those under which they were sealed"
    case .tooShort(let byteCount, let minimum):
      "a sealed message has at least \(minimum) bytes, this one has \(byteCount)"
    case .passwordHashOutOfMemory(let byteCount):
      "the password hash could not get \(byteCount / 1024) KiB of memory; free some and try again"
    case .secretMemoryExhausted(let byteCount):
      "no guarded memory for \(byteCount) bytes of key; raise the limit of locked memory (ulimit -l)"
    case .keysWiped:
      "the keys were wiped"
    case .libcryptoFailed:
      "libcrypto failed; select the libsodium cipher"
    }
  }
}
