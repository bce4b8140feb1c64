import SodiumPrimitives

/// What both sides of a handshake derive step by step (Noise, "The SymmetricState object"): the
/// chaining key, the hash of everything so far, and the key for what is encrypted next.
struct NoiseSymmetricState {
  private static let hashByteCount = 64
  private static let keyByteCount = 32

  private var chainingKey: WipedBytes
  private(set) var hash: [UInt8]
  /// Nil before the first key agreement.
  private var key: WipedBytes?
  private var number: UInt64 = 0

  init(_ protocolName: String) {
    let name = Array(protocolName.utf8)
    hash =
      name.count <= Self.hashByteCount
      ? name + [UInt8](repeating: 0, count: Self.hashByteCount - name.count)
      : name.withUnsafeBytes { KeyedHash.checksum($0, count: Self.hashByteCount) }
    let hash = hash
    chainingKey = WipedBytes(hash.count) { $0.copyBytes(from: hash) }
  }

  mutating func mixHash(_ data: some Sequence<UInt8>) {
    hash = (hash + data).withUnsafeBytes { KeyedHash.checksum($0, count: Self.hashByteCount) }
  }

  mutating func mixKey(_ secret: UnsafeRawBufferPointer) {
    (chainingKey, key) = derived(from: secret)
    number = 0
  }

  mutating func encryptAndHash(_ plaintext: [UInt8]) -> [UInt8] {
    guard let key else {
      mixHash(plaintext)
      return plaintext
    }
    var sealed = [UInt8](repeating: 0, count: plaintext.count + ChaChaPoly.tagByteCount)
    key.withUnsafeBytes { key in
      sealed.withUnsafeMutableBytes {
        ChaChaPoly.seal(
          plaintext.span.bytes, key: key.bytes.extracting(first: Self.keyByteCount), number: number,
          ad: hash.span.bytes, into: $0)
      }
    }
    number += 1
    mixHash(sealed)
    return sealed
  }

  /// Throws `notAuthentic`.
  mutating func decryptAndHash(_ sealed: [UInt8]) throws(CryptoError) -> [UInt8] {
    guard let key else {
      mixHash(sealed)
      return sealed
    }
    guard sealed.count >= ChaChaPoly.tagByteCount else { throw .notAuthentic }
    var plaintext = [UInt8](repeating: 0, count: sealed.count - ChaChaPoly.tagByteCount)
    try Self.open(sealed, key, number, ad: hash, into: &plaintext)
    number += 1
    mixHash(sealed)
    return plaintext
  }

  /// `Array.withUnsafeMutableBytes` throws errors without their type.
  private static func open(
    _ sealed: [UInt8], _ key: WipedBytes, _ number: UInt64, ad: [UInt8], into plaintext: inout [UInt8]
  ) throws(CryptoError) {
    let result = key.withUnsafeBytes { key in
      plaintext.withUnsafeMutableBytes { output in
        Result { () throws(CryptoError) in
          try ChaChaPoly.open(
            sealed.span.bytes, key: key.bytes.extracting(first: keyByteCount), number: number,
            ad: ad.span.bytes, into: output)
        }
      }
    }
    try result.get()
  }

  /// The key of what the initiator sends, or the responder.
  func transportKey(ofInitiator: Bool) throws(CryptoError) -> SecretKey {
    let (initiators, responders) = derived(from: UnsafeRawBufferPointer(start: nil, count: 0))
    return try SecretKey { key in
      (ofInitiator ? initiators : responders).withUnsafeBytes {
        key.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<Self.keyByteCount]))
      }
    }
  }

  // MARK: HKDF

  /// The two outputs of HKDF with the chaining key and HMAC-BLAKE2b, of 64 bytes each.
  private func derived(from material: UnsafeRawBufferPointer) -> (WipedBytes, WipedBytes) {
    let temporary = Self.hmac(key: chainingKey, material)
    let first = withUnsafeBytes(of: UInt8(1)) { Self.hmac(key: temporary, $0) }
    return (first, first.withUnsafeBytes { Self.hmac(key: temporary, $0, last: 2) })
  }

  private static let blockByteCount = 128

  /// HMAC (RFC 2104) with BLAKE2b-512 of `data`, and of the byte `last` behind it. The key has 64 bytes.
  private static func hmac(
    key: WipedBytes, _ data: UnsafeRawBufferPointer, last: UInt8? = nil
  ) -> WipedBytes {
    func padded(_ pad: UInt8, _ data: UnsafeRawBufferPointer, _ last: UInt8?) -> WipedBytes {
      let count = blockByteCount + data.count + (last == nil ? 0 : 1)
      return withUnsafeTemporaryAllocation(byteCount: count, alignment: 16) { input in
        defer { wipe(input) }
        key.withUnsafeBytes { key in
          for i in 0..<blockByteCount { input[i] = pad ^ (i < key.count ? key[i] : 0) }
        }
        for i in 0..<data.count { input[blockByteCount + i] = data[i] }
        if let last { input[count - 1] = last }
        return WipedBytes(hashByteCount) { KeyedHash.compute(UnsafeRawBufferPointer(input), into: $0) }
      }
    }
    return padded(0x36, data, last).withUnsafeBytes { padded(0x5c, $0, nil) }
  }
}

/// Bytes that are overwritten when nobody holds them any more.
private final class WipedBytes {
  private let memory: UnsafeMutableRawBufferPointer

  init(_ count: Int, _ fill: (UnsafeMutableRawBufferPointer) -> Void) {
    memory = .allocate(byteCount: count, alignment: 16)
    fill(memory)
  }

  deinit {
    wipe(memory)
    memory.deallocate()
  }

  func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
    defer { withExtendedLifetime(self) {} }
    return body(UnsafeRawBufferPointer(memory))
  }
}
