import CLibcrypto
import CSodium

/// Who computes ChaCha20-Poly1305. Both give the same bytes.
public enum CipherBackend: String, Sendable, CaseIterable {
  case libsodium
  /// libcrypto's vectorised code for the bulk, libsodium for the rest.
  case libcrypto

  /// `libcrypto` when it is installed and agrees with libsodium in a known-answer check, made once; else `libsodium`.
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

/// Seals and opens secretstream messages (XChaCha20-Poly1305, libsodium's bytes) for one thread at a time.
///
/// A secretstream message is the IETF ChaCha20-Poly1305 AEAD of (a 64-byte block that starts with the tag) ‖ message, of
/// whose encrypted block only the first byte is kept. That is exact when the length is a multiple of 8, because libsodium
/// pads the authenticator's input in its own way; other lengths, and short messages, go through libsodium.
public final class SecretStreamCipher {
  public static let headerByteCount = 24
  /// Tag byte and authenticator: what a message in a stream is longer than its plaintext.
  public static let messageOverheadByteCount = 17
  /// Header, tag byte and authenticator: what a one-message stream is longer than its plaintext.
  public static let overheadByteCount = 41

  /// Below this, calling libcrypto costs more than it saves.
  static let acceleratedByteCountMin = 256

  public let backend: CipherBackend
  private let context: OpaquePointer?
  /// Plaintext that is not authentic yet; only here may libcrypto write before it has verified.
  private var scratch: UnsafeMutableRawBufferPointer

  public init(_ backend: CipherBackend = .preferred) {
    requireSodium()
    context = backend == .libcrypto ? clibcrypto_context_create() : nil
    self.backend = context == nil ? .libsodium : .libcrypto
    scratch = .allocate(byteCount: 16384, alignment: 64)
  }

  deinit {
    wipe(scratch)
    scratch.deallocate()
    if let context { clibcrypto_context_destroy(context) }
  }

  // MARK: One message

  /// Writes header ‖ message with tag FINAL to `output` (41 bytes more than the plaintext).
  @inline(__always)
  public func seal(
    _ message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, header: UnsafeRawBufferPointer,
    ad: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(
      output.count == message.count + Self.overheadByteCount, "a sealed message is 41 bytes longer")
    var state = SecretStreamState(key: key, header: header)
    output.copyMemory(from: UnsafeRawBufferPointer(rebasing: header[0..<Self.headerByteCount]))
    push(
      &state, message, ad: ad, tag: .final,
      into: UnsafeMutableRawBufferPointer(rebasing: output[Self.headerByteCount...]))
    state.wipe()
  }

  /// Opens a one-message stream. The plaintext stands in the cipher's own scratch memory, is authentic, and is valid
  /// until the cipher's next call; when the authenticator or the tag FINAL does not hold, nothing is handed out.
  @inline(__always)
  public func open(
    _ sealed: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> UnsafeRawBufferPointer {
    guard sealed.count >= Self.overheadByteCount else {
      throw .tooShort(byteCount: sealed.count, minimum: Self.overheadByteCount)
    }
    let header = UnsafeRawBufferPointer(rebasing: sealed[0..<Self.headerByteCount])
    var state = SecretStreamState(key: key, header: header)
    defer { state.wipe() }
    let message = UnsafeRawBufferPointer(rebasing: sealed[Self.headerByteCount...])
    let tag = try pullIntoScratch(&state, message, ad: ad)
    guard tag == .final else { throw .notAuthentic }
    return UnsafeRawBufferPointer(rebasing: scratch[0..<(sealed.count - Self.overheadByteCount)])
  }

  public func seal(_ message: [UInt8], key: [UInt8], header: [UInt8], ad: [UInt8]) -> [UInt8] {
    let count = message.count + Self.overheadByteCount
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      message.withUnsafeBytes { message in
        key.withUnsafeBytes { key in
          header.withUnsafeBytes { header in
            ad.withUnsafeBytes { ad in
              seal(
                message, key: key, header: header, ad: ad,
                into: UnsafeMutableRawBufferPointer(
                  rebasing: UnsafeMutableRawBufferPointer(buffer)[0..<count]))
            }
          }
        }
      }
      initialized = count
    }
  }

  public func open(_ sealed: [UInt8], key: [UInt8], ad: [UInt8]) throws(CryptoError) -> [UInt8] {
    let opened: Result<[UInt8], CryptoError> = sealed.withUnsafeBytes { sealed in
      key.withUnsafeBytes { key in
        ad.withUnsafeBytes { ad in
          Result { () throws(CryptoError) in [UInt8](try open(sealed, key: key, ad: ad)) }
        }
      }
    }
    return try opened.get()
  }

  // MARK: Streams

  /// Seals the next message of a stream: `output` gets 17 bytes more than the message. Ratchets as libsodium does
  /// after tag REKEY and when the message counter wraps.
  @inline(__always)
  public func push(
    _ state: inout SecretStreamState, _ message: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer,
    tag: SecretStreamTag, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(
      output.count == message.count + Self.messageOverheadByteCount,
      "a message in a stream is 17 bytes longer")
    if let context, isAccelerated(message.count) {
      let sealed = withBlock { block in
        block[0] = tag.rawValue
        let sealed = state.withKeyAndNonce { key, nonce in
          clibcrypto_seal(
            context, key, nonce, ad.bytePointerOrNil, ad.count, block.bytePointer, block.bytePointer,
            message.bytePointerOrNil, message.count, output.bytePointer + 1,
            output.bytePointer + 1 + message.count)
        }
        output[0] = block[0]
        return sealed
      }
      if sealed == 1 {
        state.advance(authenticator: output.bytePointer + 1 + message.count, tag: tag)
        return
      }
    }
    let status = crypto_secretstream_xchacha20poly1305_push(
      &state.raw, output.bytePointer, nil, message.bytePointerOrNil, UInt64(message.count),
      ad.bytePointerOrNil,
      UInt64(ad.count), tag.rawValue)
    precondition(status == 0, "a secretstream message is at most 256 GiB long")
  }

  /// Opens the next message of a stream into `output` (17 bytes shorter than the message). When it is not authentic,
  /// `output` and the state are as they were.
  public func pull(
    _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer,
    into output: UnsafeMutableRawBufferPointer
  ) throws(CryptoError) -> SecretStreamTag? {
    guard sealed.count >= Self.messageOverheadByteCount else {
      throw .tooShort(byteCount: sealed.count, minimum: Self.messageOverheadByteCount)
    }
    precondition(
      output.count + Self.messageOverheadByteCount == sealed.count, "a message in a stream is 17 bytes longer"
    )
    let tag = try pullIntoScratch(&state, sealed, ad: ad)
    output.copyMemory(from: UnsafeRawBufferPointer(rebasing: scratch[0..<output.count]))
    return tag
  }

  /// Opens the next message of a stream. The plaintext stands in the cipher's own scratch memory, is authentic, and is valid until the
  /// cipher's next call. When the message is not authentic, the state is as it was.
  package func pull(
    _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> (plaintext: UnsafeRawBufferPointer, tag: SecretStreamTag?) {
    let tag = try pullIntoScratch(&state, sealed, ad: ad)
    return (
      UnsafeRawBufferPointer(rebasing: scratch[0..<(sealed.count - Self.messageOverheadByteCount)]), tag
    )
  }

  /// A tag that is none of the four is authentic, so the stream goes on as in libsodium; it is reported as nil.
  @inline(__always)
  private func pullIntoScratch(
    _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> SecretStreamTag? {
    guard sealed.count >= Self.messageOverheadByteCount else {
      throw .tooShort(byteCount: sealed.count, minimum: Self.messageOverheadByteCount)
    }
    let count = sealed.count - Self.messageOverheadByteCount
    if scratch.count < count { growScratch(count) }
    if let context, isAccelerated(count) {
      let tag = try openAccelerated(context, &state, sealed, count, ad)
      let authenticator = sealed.bytePointer + 1 + count
      state.advance(authenticator: authenticator, rawTag: tag)
      return SecretStreamTag(rawValue: tag)
    }
    var tag: UInt8 = 0
    let status = crypto_secretstream_xchacha20poly1305_pull(
      &state.raw, scratch.bytePointer, nil, &tag, sealed.bytePointer, UInt64(sealed.count),
      ad.bytePointerOrNil,
      UInt64(ad.count))
    guard status == 0 else { throw .notAuthentic }
    return SecretStreamTag(rawValue: tag)
  }

  @inline(__always)
  private func openAccelerated(
    _ context: OpaquePointer, _ state: inout SecretStreamState, _ sealed: UnsafeRawBufferPointer,
    _ count: Int,
    _ ad: UnsafeRawBufferPointer
  ) throws(CryptoError) -> UInt8 {
    var tag: UInt8 = 0
    let opened = withBlock { block in
      state.withKeyAndNonce { key, nonce in
        // The stored byte decrypts to the tag; the other 63 bytes of the block are the bare key stream.
        block[0] = sealed[0]
        crypto_stream_chacha20_ietf_xor_ic(block.bytePointer, block.bytePointer, 64, nonce, 1, key)
        tag = block[0]
        block[0] = sealed[0]
        return clibcrypto_open(
          context, key, nonce, ad.bytePointerOrNil, ad.count, block.bytePointer, sealed.bytePointer + 1,
          count,
          scratch.bytePointer, sealed.bytePointer + 1 + count)
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
