import Locks
import SodiumPrimitives

/// A pool of ciphers that any thread can use for a moment.
final class CipherPool: Sendable {
  let backend: CipherBackend
  let keys: KeyPool
  private let idle: Guarded<[SecretStreamCipher]> = Guarded([])

  /// `keys`: that of the keys which the ciphers are used with.
  init(_ backend: CipherBackend, in keys: KeyPool) { (self.backend, self.keys) = (backend, keys) }

  func withCipher<R, E: Error>(_ body: (SecretStreamCipher) throws(E) -> R) throws(E) -> R {
    let cipher = idle.withLock { $0.popLast() } ?? SecretStreamCipher(backend, in: keys)
    defer { idle.withLock { if $0.count < 8, !keys.isShut { $0.append(cipher) } } }
    return try body(cipher)
  }

  /// Lets go of idle ciphers, in whose memory is what they have opened last.
  func removeAll() { idle.withLock { $0.removeAll() } }
}
