import SodiumPrimitives

/// What both sides of a handshake derive step by step (Noise, "The SymmetricState object"): the
/// chaining key, the hash of everything so far, and the key for what is encrypted next.
struct NoiseSymmetricState {
  private static let hashByteCount = 64
  private static let keyByteCount = 32

  private var chainingKey: [UInt8]
  private(set) var hash: [UInt8]
  /// Empty before the first key agreement.
  private var key: [UInt8] = []
  private var number: UInt64 = 0

  init(_ protocolName: String) {
    let name = Array(protocolName.utf8)
    hash =
      name.count <= Self.hashByteCount
      ? name + [UInt8](repeating: 0, count: Self.hashByteCount - name.count)
      : name.withUnsafeBytes { KeyedHash.checksum($0, count: Self.hashByteCount) }
    chainingKey = hash
  }

  mutating func mixHash(_ data: some Sequence<UInt8>) {
    hash = (hash + data).withUnsafeBytes { KeyedHash.checksum($0, count: Self.hashByteCount) }
  }

  mutating func mixKey(_ secret: UnsafeRawBufferPointer) {
    var (next, key) = derived(from: Array(secret))
    swap(&chainingKey, &next)
    Self.wipe(&next)
    Self.wipe(&self.key)
    self.key = Array(key[..<Self.keyByteCount])
    Self.wipe(&key)
    number = 0
  }

  mutating func encryptAndHash(_ plaintext: [UInt8]) -> [UInt8] {
    guard !key.isEmpty else {
      mixHash(plaintext)
      return plaintext
    }
    let sealed = [UInt8](unsafeUninitializedCapacity: plaintext.count + ChaChaPoly.tagByteCount) {
      buffer, initialized in
      initialized = plaintext.count + ChaChaPoly.tagByteCount
      ChaChaPoly.seal(
        plaintext.span.bytes, key: key.span.bytes, number: number, ad: hash.span.bytes,
        into: UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[..<initialized]))
    }
    number += 1
    mixHash(sealed)
    return sealed
  }

  /// Throws `notAuthentic`.
  mutating func decryptAndHash(_ sealed: [UInt8]) throws(CryptoError) -> [UInt8] {
    guard !key.isEmpty else {
      mixHash(sealed)
      return sealed
    }
    guard sealed.count >= ChaChaPoly.tagByteCount else { throw .notAuthentic }
    var plaintext = [UInt8](repeating: 0, count: sealed.count - ChaChaPoly.tagByteCount)
    try Self.open(sealed, key: key, number, ad: hash, into: &plaintext)
    number += 1
    mixHash(sealed)
    return plaintext
  }

  /// `Array.withUnsafeMutableBytes` throws errors without their type.
  private static func open(
    _ sealed: [UInt8], key: [UInt8], _ number: UInt64, ad: [UInt8], into plaintext: inout [UInt8]
  ) throws(CryptoError) {
    let result = plaintext.withUnsafeMutableBytes { output in
      Result { () throws(CryptoError) in
        try ChaChaPoly.open(
          sealed.span.bytes, key: key.span.bytes, number: number, ad: ad.span.bytes, into: output)
      }
    }
    try result.get()
  }

  /// The key of what the initiator sends, or the responder.
  func transportKey(ofInitiator: Bool) throws(CryptoError) -> SecretKey {
    var (initiators, responders) = derived(from: [])
    defer {
      Self.wipe(&initiators)
      Self.wipe(&responders)
    }
    return try SecretKey { key in
      (ofInitiator ? initiators : responders).withUnsafeBytes {
        key.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<Self.keyByteCount]))
      }
    }
  }

  /// Overwrites the keys. The hash stays.
  mutating func wipe() {
    Self.wipe(&chainingKey)
    Self.wipe(&key)
  }

  private static func wipe(_ bytes: inout [UInt8]) {
    bytes.withUnsafeMutableBytes { SodiumPrimitives.wipe($0) }
    bytes = []
  }

  // MARK: HKDF

  /// The two outputs of HKDF with the chaining key and HMAC-BLAKE2b, of 64 bytes each.
  private func derived(from material: [UInt8]) -> ([UInt8], [UInt8]) {
    var material = material
    var temporary = Self.hmac(key: chainingKey, material)
    Self.wipe(&material)
    defer { Self.wipe(&temporary) }
    let first = Self.hmac(key: temporary, [1])
    return (first, Self.hmac(key: temporary, first + [2]))
  }

  private static let blockByteCount = 128

  /// HMAC (RFC 2104) with BLAKE2b-512. The key has at most one block.
  private static func hmac(key: [UInt8], _ data: [UInt8]) -> [UInt8] {
    func padded(_ pad: UInt8, _ data: [UInt8]) -> [UInt8] {
      var input = [UInt8](repeating: pad, count: blockByteCount)
      for i in key.indices { input[i] ^= key[i] }
      input += data
      defer { wipe(&input) }
      return input.withUnsafeBytes { KeyedHash.checksum($0, count: hashByteCount) }
    }
    return padded(0x5c, padded(0x36, data))
  }
}
