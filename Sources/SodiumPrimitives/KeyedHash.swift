import CSodium

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// BLAKE2b, keyed and not (`crypto_generichash`), and HChaCha20: what the format pages call KB,
/// checksum and HChaCha20.
public enum KeyedHash {
  /// Keyed BLAKE2b of `data`; as many bytes as `output` has (16 … 64).
  public static func compute(
    key: UnsafeRawBufferPointer, data: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(
      (16...64).contains(output.count) && (16...64).contains(key.count),
      "BLAKE2b takes 16 to 64 bytes of output and key")
    let status = crypto_generichash(
      output.bytePointer, output.count, data.bytePointerOrNil, UInt64(data.count), key.bytePointer, key.count)
    wipeStack(2048)
    precondition(status == 0, "BLAKE2b takes 16 to 64 bytes of output and key")
  }

  public static func compute(count: Int, key: UnsafeRawBufferPointer, data: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      data.withUnsafeBytes { compute(key: key, data: $0, into: UnsafeMutableRawBufferPointer(buffer)) }
      initialized = count
    }
  }

  /// Unkeyed BLAKE2b: tells torn from altered, proves nothing against an attacker.
  public static func checksum(_ data: UnsafeRawBufferPointer, count: Int = 16) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      compute(
        data, into: UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[..<count]))
      initialized = count
    }
  }

  /// Unkeyed BLAKE2b; as many bytes as `output` has (16 … 64).
  public static func compute(_ data: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) {
    let status = crypto_generichash(
      output.bytePointer, output.count, data.bytePointerOrNil, UInt64(data.count), nil, 0)
    precondition(status == 0, "BLAKE2b gives 16 to 64 bytes")
  }

  /// HChaCha20 with libsodium's constant: 32 bytes from 32 bytes of key and 16 of input.
  @inline(__always)
  public static func hchacha20(
    key: UnsafeRawBufferPointer, input: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(
      key.count == 32 && input.count == 16 && output.count == 32, "HChaCha20 takes 32 and 16 bytes")
    crypto_core_hchacha20(output.bytePointer, input.bytePointer, key.bytePointer, nil)
    wipeStack(256)
  }

  /// The ChaCha20 (IETF) key stream under a nonce of zeros, from block 0.
  public static func keyStream(key: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) {
    precondition(key.count == 32, "ChaCha20 takes a key of 32 bytes")
    withUnsafeTemporaryAllocation(byteCount: 12, alignment: 8) { nonce in
      nonce.initializeMemory(as: UInt8.self, repeating: 0)
      crypto_stream_chacha20_ietf(
        output.bytePointer, UInt64(output.count), nonce.bytePointer, key.bytePointer)
      wipeStack(256)
    }
  }

  /// Compares bytes whose difference nobody can learn from the time it takes; several times as fast
  /// as ``equal(_:_:)``.
  public static func sameContents(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
    a.count == b.count && (a.isEmpty || memcmp(a.baseAddress!, b.baseAddress!, a.count) == 0)
  }

  /// Compares without a time that depends on the contents.
  public static func equal(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
    a.count == b.count && (a.isEmpty || sodium_memcmp(a.baseAddress, b.baseAddress, a.count) == 0)
  }
}

/// Overwrites with zeros in a way that the compiler may not remove.
public func wipe(_ buffer: UnsafeMutableRawBufferPointer) {
  guard let base = buffer.baseAddress else { return }
  sodium_memzero(base, buffer.count)
}

/// Overwrites what a function of libsodium that just returned has left on the stack. BLAKE2b leaves its key and its result there, which a search
/// of the memory finds for as long as nothing else goes as deep.
@inline(__always)
func wipeStack(_ byteCount: Int) { sodium_stackzero(byteCount) }

extension UnsafeRawBufferPointer {
  @inline(__always)
  var bytePointer: UnsafePointer<UInt8> { baseAddress!.assumingMemoryBound(to: UInt8.self) }
  @inline(__always)
  var bytePointerOrNil: UnsafePointer<UInt8>? { baseAddress?.assumingMemoryBound(to: UInt8.self) }
}

extension UnsafeMutableRawBufferPointer {
  @inline(__always)
  var bytePointer: UnsafeMutablePointer<UInt8> { baseAddress!.assumingMemoryBound(to: UInt8.self) }
}
