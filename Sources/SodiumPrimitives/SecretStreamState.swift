import CSodium

/// The tag of a secretstream message, with libsodium's values.
public enum SecretStreamTag: UInt8, Sendable, CaseIterable {
  case message = 0
  case push = 1
  case rekey = 2
  case final = 3
}

/// Key and nonce of a secretstream between two messages.
///
/// Not copyable: a state that was saved or cloned would seal two messages under one nonce.
public struct SecretStreamState: ~Copyable {
  var raw = crypto_secretstream_xchacha20poly1305_state()

  /// The state at the start of a stream, for sealing as well as opening (`init_push` differs from
  /// `init_pull` only in drawing the header). A header is used once under a key.
  @inline(__always)
  public init(key: RawSpan, header: RawSpan) {
    precondition(
      key.byteCount == 32 && header.byteCount == 24,
      "a secretstream takes a key of 32 and a header of 24 bytes")
    key.withUnsafeBytes { key in
      header.withUnsafeBytes { header in
        _ = crypto_secretstream_xchacha20poly1305_init_pull(&raw, header.bytePointer, key.bytePointer)
      }
    }
  }

  /// Ratchets the key (`crypto_secretstream_xchacha20poly1305_rekey`).
  public mutating func rekey() {
    crypto_secretstream_xchacha20poly1305_rekey(&raw)
  }

  /// Sets the message counter, so that tests can reach its wrap-around.
  package mutating func setCounter(_ counter: UInt32) {
    withUnsafeMutableBytes(of: &raw.nonce) { $0.storeBytes(of: counter.littleEndian, as: UInt32.self) }
  }

  /// Every byte of the state, so that tests can compare it with libsodium's.
  package var bytes: [UInt8] {
    mutating get { withUnsafeMutableBytes(of: &raw) { [UInt8]($0) } }
  }

  @inline(__always)
  mutating func withKeyAndNonce<R>(_ body: (UnsafePointer<UInt8>, UnsafePointer<UInt8>) -> R) -> R {
    withUnsafeMutableBytes(of: &raw) { state in
      body(UnsafePointer(state.bytePointer), UnsafePointer(state.bytePointer + 32))
    }
  }

  @inline(__always)
  mutating func advance(authenticator: UnsafePointer<UInt8>, tag: SecretStreamTag) {
    advance(authenticator: authenticator, rawTag: tag.rawValue)
  }

  /// Updates the state as libsodium does after each message: the Poly1305 tag's first 8 bytes go
  /// into the nonce, the counter is incremented, and the key is ratcheted after a REKEY tag or when
  /// the counter wraps to zero.
  @inline(__always)
  mutating func advance(authenticator: UnsafePointer<UInt8>, rawTag: UInt8) {
    let wrapped = withUnsafeMutableBytes(of: &raw.nonce) { nonce in
      for i in 0..<8 { nonce[4 + i] ^= authenticator[i] }
      let counter = UInt32(littleEndian: nonce.loadUnaligned(as: UInt32.self)) &+ 1
      nonce.storeBytes(of: counter.littleEndian, as: UInt32.self)
      return counter == 0
    }
    if wrapped || rawTag & SecretStreamTag.rekey.rawValue != 0 {
      crypto_secretstream_xchacha20poly1305_rekey(&raw)
    }
  }

  /// Overwrites key and nonce. To be called when the stream is not needed any more.
  @inline(__always)
  public mutating func wipe() {
    withUnsafeMutableBytes(of: &raw) { sodium_memzero($0.baseAddress, $0.count) }
    wipeStack(256)
  }
}
