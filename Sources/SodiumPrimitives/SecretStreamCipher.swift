import CLibcrypto
import CSodium

/// Seals and opens secretstream messages (XChaCha20-Poly1305, libsodium's bytes), for one thread at
/// a time.
///
/// A secretstream message is the IETF ChaCha20-Poly1305 AEAD of (a 64-byte block that starts with
/// the tag) ‖ message, of whose encrypted block only the first byte is kept. That is exact when the
/// length is a multiple of 8, because libsodium pads the input of Poly1305 in its own way; other
/// lengths, and short messages, go through libsodium.
public final class SecretStreamCipher {
  public static let headerByteCount = 24
  /// The tag byte and the Poly1305 tag of a message in a stream.
  public static let messageOverheadByteCount = 17
  /// The header, the tag byte and the Poly1305 tag of a stream of one message.
  public static let overheadByteCount = 41

  /// Below this, calling libcrypto costs more than it saves.
  static let acceleratedByteCountMin = 256

  public let backend: CipherBackend
  private let context: OpaquePointer?
  public let pool: KeyPool
  /// Plaintext that is not authentic yet; only here may libcrypto write before it has verified.
  private var scratch: UnsafeMutableRawBufferPointer

  /// `pool`: that of the keys which the cipher is used with. Each use is inside of its gate (``KeyPool/inside(else:_:)``).
  public init(_ backend: CipherBackend = .preferred, in pool: KeyPool = .shared) {
    requireSodium()
    context = backend == .libcrypto ? clibcrypto_context_create() : nil
    self.backend = context == nil ? .libsodium : .libcrypto
    self.pool = pool
    scratch = .allocate(byteCount: 16384, alignment: 64)
    // libsodium keeps nothing of a key.
    if context != nil { pool.add(self) }
  }

  deinit {
    if context != nil { pool.remove(self) }
    wipe(scratch)
    scratch.deallocate()
    if let context { clibcrypto_context_destroy(context) }
  }

  /// libcrypto keeps the key of the last message until the next one, or until its context is freed. Any thread may call, while nobody uses the cipher.
  func forgetKeys() { if let context { clibcrypto_context_forget(context) } }

  /// The same of the message that was opened last, for whoever has used the cipher with a key of another pool.
  public func forgetOpeningKey() { if let context { clibcrypto_context_forget_opening(context) } }

  // MARK: One message

  /// Seals a message as a stream of its own, and appends header ‖ message with tag FINAL to
  /// `output`: 41 bytes more than the message.
  @inline(__always)
  public func seal(
    _ message: RawSpan, key: RawSpan, header: RawSpan, ad: RawSpan, into output: inout OutputRawSpan
  ) {
    var state = SecretStreamState(key: key, header: header)
    header.withUnsafeBytes { output.append(copying: $0) }
    push(&state, message, ad: ad, tag: .final, into: &output)
    state.wipe()
  }

  /// Opens a stream of one message. The plaintext is authentic, and is in the cipher's scratch
  /// memory until the cipher's next call. Throws when the Poly1305 tag or the tag FINAL does not
  /// hold.
  ///
  /// The result is a pointer because a function cannot return a span without an experimental
  /// feature.
  @inline(__always)
  public func open(
    _ sealed: RawSpan, key: RawSpan, ad: RawSpan
  ) throws(CryptoError) -> UnsafeRawBufferPointer {
    guard sealed.byteCount >= Self.overheadByteCount else {
      throw .tooShort(byteCount: sealed.byteCount, minimum: Self.overheadByteCount)
    }
    var state = SecretStreamState(key: key, header: sealed.extracting(first: Self.headerByteCount))
    defer { state.wipe() }
    let (plaintext, tag) = try pull(&state, sealed.extracting(droppingFirst: Self.headerByteCount), ad: ad)
    guard tag == .final else { throw .notAuthentic }
    return plaintext
  }

  /// `seal` for known answers, which are arrays.
  package func seal(_ message: [UInt8], key: [UInt8], header: [UInt8], ad: [UInt8]) -> [UInt8] {
    let count = message.count + Self.overheadByteCount
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      var output = OutputRawSpan(buffer: UnsafeMutableRawBufferPointer(buffer), initializedCount: 0)
      seal(
        message.span.bytes, key: key.span.bytes, header: header.span.bytes, ad: ad.span.bytes, into: &output)
      initialized = output.byteCount
    }
  }

  /// `open` for known answers, which are arrays.
  package func open(_ sealed: [UInt8], key: [UInt8], ad: [UInt8]) throws(CryptoError) -> [UInt8] {
    [UInt8](try open(sealed.span.bytes, key: key.span.bytes, ad: ad.span.bytes))
  }

  // MARK: Streams

  /// Seals the next message of a stream, and appends it to `output`: 17 bytes more than the
  /// message. Ratchets as libsodium does after tag REKEY and when the message counter wraps.
  @inline(__always)
  public func push(
    _ state: inout SecretStreamState, _ message: RawSpan, ad: RawSpan, tag: SecretStreamTag,
    into output: inout OutputRawSpan
  ) {
    message.withUnsafeBytes { message in
      ad.withUnsafeBytes { ad in
        output.append(message.count + Self.messageOverheadByteCount) { output in
          push(&state, message, ad, tag, into: output)
        }
      }
    }
  }

  @inline(__always)
  private func push(
    _ state: inout SecretStreamState, _ message: UnsafeRawBufferPointer, _ ad: UnsafeRawBufferPointer,
    _ tag: SecretStreamTag, into output: UnsafeMutableRawBufferPointer
  ) {
    if let context, isAccelerated(message.count), pushAccelerated(context, &state, message, ad, tag, output) {
      return
    }
    let status = crypto_secretstream_xchacha20poly1305_push(
      &state.raw, output.bytePointer, nil, message.bytePointerOrNil, UInt64(message.count),
      ad.bytePointerOrNil, UInt64(ad.count), tag.rawValue)
    precondition(status == 0, "a secretstream message is at most 256 GiB long")
  }

  /// Returns false when libcrypto failed; `state` is then as it was.
  @inline(__always)
  private func pushAccelerated(
    _ context: OpaquePointer, _ state: inout SecretStreamState, _ message: UnsafeRawBufferPointer,
    _ ad: UnsafeRawBufferPointer, _ tag: SecretStreamTag, _ output: UnsafeMutableRawBufferPointer
  ) -> Bool {
    let authenticator = output.bytePointer + 1 + message.count
    let sealed = withBlock { block in
      block[0] = tag.rawValue
      let sealed = state.withKeyAndNonce { key, nonce in
        clibcrypto_seal(
          context, key, nonce, ad.bytePointerOrNil, ad.count, block.bytePointer, block.bytePointer,
          message.bytePointerOrNil, message.count, output.bytePointer + 1, authenticator)
      }
      output[0] = block[0]
      return sealed
    }
    guard sealed == 1 else { return false }
    state.advance(authenticator: authenticator, tag: tag)
    return true
  }

  /// Opens the next message of a stream. The plaintext is authentic, and is in the cipher's scratch
  /// memory until the cipher's next call. When the message is not authentic, the state is as it
  /// was. A tag that is none of the four is authentic, so the stream goes on as in libsodium; it is
  /// returned as nil.
  @inline(__always)
  public func pull(
    _ state: inout SecretStreamState, _ sealed: RawSpan, ad: RawSpan
  ) throws(CryptoError) -> (plaintext: UnsafeRawBufferPointer, tag: SecretStreamTag?) {
    guard sealed.byteCount >= Self.messageOverheadByteCount else {
      throw .tooShort(byteCount: sealed.byteCount, minimum: Self.messageOverheadByteCount)
    }
    let count = sealed.byteCount - Self.messageOverheadByteCount
    if scratch.count < count { growScratch(count) }
    let tag = try sealed.withUnsafeBytes { sealed throws(CryptoError) in
      try ad.withUnsafeBytes { ad throws(CryptoError) in
        try pullIntoScratch(&state, sealed, count, ad)
      }
    }
    return (UnsafeRawBufferPointer(rebasing: scratch[0..<count]), SecretStreamTag(rawValue: tag))
  }

  @inline(__always)
  private func pullIntoScratch(
    _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer, _ count: Int,
    _ ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> UInt8 {
    if let context, isAccelerated(count) {
      let tag = try openAccelerated(context, &state, sealed, count, ad)
      state.advance(authenticator: sealed.bytePointer + 1 + count, rawTag: tag)
      return tag
    }
    var tag: UInt8 = 0
    let status = crypto_secretstream_xchacha20poly1305_pull(
      &state.raw, scratch.bytePointer, nil, &tag, sealed.bytePointer, UInt64(sealed.count),
      ad.bytePointerOrNil, UInt64(ad.count))
    guard status == 0 else { throw .notAuthentic }
    return tag
  }

  @inline(__always)
  private func openAccelerated(
    _ context: OpaquePointer, _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer,
    _ count: Int, _ ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> UInt8 {
    var tag: UInt8 = 0
    let opened = withBlock { block in
      state.withKeyAndNonce { key, nonce in
        // The stored byte decrypts to the tag; the other 63 bytes of the block are the bare key
        // stream.
        block[0] = sealed[0]
        crypto_stream_chacha20_ietf_xor_ic(block.bytePointer, block.bytePointer, 64, nonce, 1, key)
        tag = block[0]
        block[0] = sealed[0]
        return clibcrypto_open(
          context, key, nonce, ad.bytePointerOrNil, ad.count, block.bytePointer, sealed.bytePointer + 1,
          count, scratch.bytePointer, sealed.bytePointer + 1 + count)
      }
    }
    guard opened == 1 else {
      wipe(UnsafeMutableRawBufferPointer(rebasing: scratch[0..<count]))
      throw opened == 0 ? .notAuthentic : .libcryptoFailed
    }
    return tag
  }

  @inline(__always)
  private func isAccelerated(_ count: Int) -> Bool {
    count >= Self.acceleratedByteCountMin && count & 7 == 0 && count <= Int(Int32.max)
  }

  private func growScratch(_ count: Int) {
    wipe(scratch)
    scratch.deallocate()
    scratch = .allocate(byteCount: count, alignment: 64)
  }

  @inline(__always)
  private func withBlock<R>(_ body: (UnsafeMutableRawBufferPointer) -> R) -> R {
    withUnsafeTemporaryAllocation(byteCount: 64, alignment: 16) { block in
      _ = block.initializeMemory(as: UInt8.self, repeating: 0)
      return body(block)
    }
  }
}
