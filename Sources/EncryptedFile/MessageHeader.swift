public import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Makes headers that repeat only if random bytes *and* two clocks repeat (FILE-FORMAT.md, "The header").
public enum MessageHeader {
  /// Bytes between two headers of a batch.
  static let stride = 32
  private static let seedLabel = label("OD1-header-seed")

  /// Headers for a batch: the first 24 of every 32 bytes of `output`. `place` names the first
  /// message of the batch and no other message under this key; its first 80 bytes are used.
  public static func fill(
    _ output: UnsafeMutableRawBufferPointer, key: UnsafeRawBufferPointer, place: UnsafeRawBufferPointer
  ) {
    withUnsafeTemporaryAllocation(byteCount: 144 + 32, alignment: 16) { memory in
      let input = UnsafeMutableRawBufferPointer(rebasing: memory[0..<144])
      let seed = UnsafeMutableRawBufferPointer(rebasing: memory[144...])
      input.initializeMemory(as: UInt8.self, repeating: 0)
      input.copyBytes(from: seedLabel)
      Random.fill(UnsafeMutableRawBufferPointer(rebasing: input[16..<48]))
      input.storeBytes(of: Clock.wallNanoseconds(), toByteOffset: 48, as: Int64.self)
      input.storeBytes(of: Clock.monotonicNanoseconds(), toByteOffset: 56, as: Int64.self)
      UnsafeMutableRawBufferPointer(rebasing: input[64...]).copyMemory(
        from: UnsafeRawBufferPointer(rebasing: place[0..<min(place.count, 80)]))
      KeyedHash.compute(key: key, data: UnsafeRawBufferPointer(input), into: seed)
      KeyedHash.keyStream(key: UnsafeRawBufferPointer(seed), into: output)
      wipe(memory)
    }
  }
}

/// The clocks of this machine: dates of files, hedges of random bytes, and signs of a clone.
public enum Clock {
  /// What 64 bits hold at most, less 11 days: a later moment can be had by adding to a time.
  static let latest = Int64.max - 1_000_000_000_000_000

  /// Nanoseconds since 1970-01-01 UTC, until 2262-03-30; from then on that moment.
  public static func wallNanoseconds() -> Int64 { read(CLOCK_REALTIME) }
  public static func monotonicNanoseconds() -> Int64 { read(CLOCK_MONOTONIC) }
  /// Nanoseconds since the machine was started, sleep included. Setting the wall clock does not move it.
  public static func bootNanoseconds() -> Int64 {
    #if canImport(Darwin)
      read(CLOCK_MONOTONIC_RAW)
    #else
      read(CLOCK_BOOTTIME)
    #endif
  }

  private static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return nanoseconds(time)
  }

  static func nanoseconds(_ time: timespec) -> Int64 {
    let (product, overflows) = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    let (sum, exceeds) = product.addingReportingOverflow(Int64(time.tv_nsec))
    return overflows || exceeds ? (time.tv_sec < 0 ? .min : latest) : min(sum, latest)
  }
}

/// A one-message secretstream under a key of its own: superblock bodies, journal records, table blocks.
public enum SealedMessage {
  public static func seal(
    _ plaintext: [UInt8], key: borrowing SecretKey, ad: [UInt8], cipher: SecretStreamCipher
  ) -> [UInt8] {
    let count = plaintext.count + SecretStreamCipher.overheadByteCount
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      let output = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: count)
      key.withUnsafeBytes { key in
        ad.withUnsafeBytes { ad in
          withUnsafeTemporaryAllocation(byteCount: MessageHeader.stride, alignment: 8) { header in
            MessageHeader.fill(header, key: key, place: ad)
            plaintext.withUnsafeBytes {
              cipher.seal(
                $0, key: key, header: UnsafeRawBufferPointer(rebasing: header[0..<24]), ad: ad, into: output)
            }
          }
        }
      }
      initialized = count
    }
  }

  /// Throws ``/SodiumPrimitives/CryptoError/notAuthentic`` or
  /// ``/SodiumPrimitives/CryptoError/tooShort(byteCount:minimum:)``.
  public static func open(
    _ sealed: [UInt8], key: borrowing SecretKey, ad: [UInt8], cipher: SecretStreamCipher
  ) throws(CryptoError) -> [UInt8] {
    try sealed.withUnsafeBytes { sealed in
      key.withUnsafeBytes { key in
        ad.withUnsafeBytes { ad in
          Result { () throws(CryptoError) in [UInt8](try cipher.open(sealed, key: key, ad: ad)) }
        }
      }
    }.get()
  }
}
