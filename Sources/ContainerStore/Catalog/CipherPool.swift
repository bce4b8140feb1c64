import Locks
import SodiumPrimitives

/// A pool of ciphers that any thread can use for a moment.
final class CipherPool: Sendable {
  let backend: CipherBackend
  private let idle: Guarded<[SecretStreamCipher]> = Guarded([])

  init(_ backend: CipherBackend) { self.backend = backend }

  func withCipher<R, E: Error>(_ body: (SecretStreamCipher) throws(E) -> R) throws(E) -> R {
    let cipher = idle.withLock { $0.popLast() } ?? SecretStreamCipher(backend)
    defer { idle.withLock { if $0.count < 8 { $0.append(cipher) } } }
    return try body(cipher)
  }
}
