import CSodium

/// libsodium's own secretstream, called directly: the oracle.
struct LibsodiumStream {
  private var state = crypto_secretstream_xchacha20poly1305_state()

  init(key: UnsafeRawBufferPointer, header: UnsafeRawBufferPointer) {
    precondition(key.count == 32 && header.count == 24)
    crypto_secretstream_xchacha20poly1305_init_pull(&state, bytes(header)!, bytes(key)!)
  }

  init(key: [UInt8], header: [UInt8]) {
    self = key.withUnsafeBytes { key in header.withUnsafeBytes { LibsodiumStream(key: key, header: $0) } }
  }

  /// A stream for sealing under a header that libsodium draws.
  init(key: [UInt8], drawing header: inout [UInt8]) {
    precondition(key.count == 32 && header.count == 24)
    crypto_secretstream_xchacha20poly1305_init_push(&state, &header, key)
  }

  mutating func push(
    _ message: UnsafeRawBufferPointer, ad: UnsafeRawBufferPointer, rawTag: UInt8,
    into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(output.count == message.count + 17)
    let status = crypto_secretstream_xchacha20poly1305_push(
      &state, output.baseAddress!.assumingMemoryBound(to: UInt8.self), nil, bytes(message),
      UInt64(message.count),
      bytes(ad), UInt64(ad.count), rawTag)
    precondition(status == 0)
  }

  mutating func push(_ message: [UInt8], ad: [UInt8] = [], rawTag: UInt8) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: message.count + 17)
    message.withUnsafeBytes { message in
      ad.withUnsafeBytes { ad in
        output.withUnsafeMutableBytes { push(message, ad: ad, rawTag: rawTag, into: $0) }
      }
    }
    return output
  }

  mutating func rekey() { crypto_secretstream_xchacha20poly1305_rekey(&state) }

  /// The counter is the first four bytes of the nonce, little-endian.
  mutating func setCounter(_ counter: UInt32) {
    withUnsafeMutableBytes(of: &state.nonce) { nonce in
      for i in 0..<4 { nonce[i] = UInt8(truncatingIfNeeded: counter >> (8 * UInt32(i))) }
    }
  }

  /// Key (32), nonce (12) and padding (8).
  var stateBytes: [UInt8] { withUnsafeBytes(of: state) { [UInt8]($0) } }

  /// A one-message stream: the header, then the message.
  static func seal(
    _ message: [UInt8], key: [UInt8], header: [UInt8], ad: [UInt8], rawTag: UInt8 = 3
  ) -> [UInt8] {
    var stream = LibsodiumStream(key: key, header: header)
    return header + stream.push(message, ad: ad, rawTag: rawTag)
  }
}

private func bytes(_ buffer: UnsafeRawBufferPointer) -> UnsafePointer<UInt8>? {
  buffer.baseAddress?.assumingMemoryBound(to: UInt8.self)
}
