import CSodium

/// ChaCha20-Poly1305 (RFC 8439, `crypto_aead_chacha20poly1305_ietf`) with numbers as nonces: four
/// zero bytes ‖ the number, 64 bits, little-endian.
public enum ChaChaPoly {
  public static let tagByteCount = 16

  /// Seals a message into `output`, which has ``tagByteCount`` bytes more.
  public static func seal(
    _ message: RawSpan, key: RawSpan, number: UInt64, ad: RawSpan, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(
      key.byteCount == 32 && output.count == message.byteCount + tagByteCount, "the output has the tag, too")
    withPointers(message, key, number, ad) { message, key, nonce, ad in
      _ = crypto_aead_chacha20poly1305_ietf_encrypt(
        output.bytePointer, nil, message.bytePointerOrNil, UInt64(message.count), ad.bytePointerOrNil,
        UInt64(ad.count), nil, nonce, key)
    }
  }

  /// Opens a sealed message into `output`, which has ``tagByteCount`` bytes less. Throws
  /// ``CryptoError/notAuthentic``; `output` is then without plaintext.
  public static func open(
    _ sealed: RawSpan, key: RawSpan, number: UInt64, ad: RawSpan, into output: UnsafeMutableRawBufferPointer
  ) throws(CryptoError) {
    precondition(
      key.byteCount == 32 && output.count + tagByteCount == sealed.byteCount, "the input has the tag, too")
    let status = withPointers(sealed, key, number, ad) { sealed, key, nonce, ad in
      crypto_aead_chacha20poly1305_ietf_decrypt(
        output.baseAddress?.assumingMemoryBound(to: UInt8.self), nil, nil, sealed.bytePointer,
        UInt64(sealed.count), ad.bytePointerOrNil, UInt64(ad.count), nonce, key)
    }
    guard status == 0 else { throw .notAuthentic }
  }

  @inline(__always)
  private static func withPointers<R>(
    _ input: RawSpan, _ key: RawSpan, _ number: UInt64, _ ad: RawSpan,
    _ body: (UnsafeRawBufferPointer, UnsafePointer<UInt8>, UnsafePointer<UInt8>, UnsafeRawBufferPointer) -> R
  ) -> R {
    withUnsafeTemporaryAllocation(byteCount: 12, alignment: 8) { nonce in
      nonce.storeBytes(of: 0, as: UInt32.self)
      nonce.storeBytes(of: number.littleEndian, toByteOffset: 4, as: UInt64.self)
      return input.withUnsafeBytes { input in
        key.withUnsafeBytes { key in
          ad.withUnsafeBytes { ad in
            body(input, key.bytePointer, UnsafePointer(nonce.bytePointer), ad)
          }
        }
      }
    }
  }
}
