public import SodiumPrimitives

/// A one-message secretstream under a key of its own: superblock bodies, journal records, table
/// blocks.
public enum SealedMessage {
  /// Throws ``/SodiumPrimitives/CryptoError/keysWiped``.
  public static func seal(
    _ plaintext: [UInt8], key: borrowing SecretKey, ad: [UInt8], cipher: SecretStreamCipher
  ) throws(CryptoError) -> [UInt8] {
    let count = plaintext.count + SecretStreamCipher.overheadByteCount
    return try key.withUnsafeBytes { key in
      [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        var output = OutputRawSpan(buffer: UnsafeMutableRawBufferPointer(buffer), initializedCount: 0)
        MessageHeaders.withOne(key: key.bytes, place: ad.span.bytes) { header in
          cipher.seal(plaintext.span.bytes, key: key.bytes, header: header, ad: ad.span.bytes, into: &output)
        }
        initialized = output.byteCount
      }
    }
  }

  /// Throws ``/SodiumPrimitives/CryptoError/notAuthentic`` or
  /// ``/SodiumPrimitives/CryptoError/tooShort(byteCount:minimum:)``.
  public static func open(
    _ sealed: [UInt8], key: borrowing SecretKey, ad: [UInt8], cipher: SecretStreamCipher
  ) throws(CryptoError) -> [UInt8] {
    try key.withUnsafeBytes { key throws(CryptoError) in
      [UInt8](try cipher.open(sealed.span.bytes, key: key.bytes, ad: ad.span.bytes))
    }
  }
}
