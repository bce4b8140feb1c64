package import SodiumPrimitives

/// Seals or opens the records of one direction, in their order: the number of a record is its nonce.
package struct RecordCipher: ~Copyable {
  /// The bytes of a record before what is sealed.
  package static let lengthByteCount = 2
  package static let plaintextByteCountMax = Int(UInt16.max) - ChaChaPoly.tagByteCount
  package static let overheadByteCount = lengthByteCount + ChaChaPoly.tagByteCount
  /// Lengths that a record may state: one byte with its tag at least.
  package static let lengths = (1 + ChaChaPoly.tagByteCount)...Int(UInt16.max)
  /// After so many records the connection ends.
  package static let countMax: UInt64 = 1 << 48

  private let key: SecretKey
  private var number: UInt64 = 0

  init(_ key: consuming SecretKey) { self.key = key }

  /// Bytes of the records for so much plaintext.
  package static func sealedByteCount(_ byteCount: Int) -> Int {
    byteCount + (byteCount + plaintextByteCountMax - 1) / plaintextByteCountMax * overheadByteCount
  }

  /// Seals 1 … 65,519 bytes as the next record, length and all, into `output`: ``overheadByteCount``
  /// more. Throws `limitExceeded` after ``countMax`` records.
  package mutating func seal(
    _ plaintext: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws(ProtocolFault) {
    precondition(
      (1...Self.plaintextByteCountMax).contains(plaintext.count)
        && output.count == plaintext.count + Self.overheadByteCount, "a record has 1 to 65,519 bytes")
    guard number < Self.countMax else { throw .limitExceeded }
    let length = UInt16(plaintext.count + ChaChaPoly.tagByteCount)
    output.storeBytes(of: length.littleEndian, as: UInt16.self)
    try key.withUnsafeBytes(else: .connectionLost) { key throws(ProtocolFault) in
      ChaChaPoly.seal(
        plaintext.bytes, key: key.bytes, number: number, ad: RawSpan(),
        into: UnsafeMutableRawBufferPointer(rebasing: output[Self.lengthByteCount...]))
    }
    number += 1
  }

  /// Seals any number of bytes as the next records, as few as there can be. Throws as
  /// ``seal(_:into:)``.
  package mutating func records(of plaintext: UnsafeRawBufferPointer) throws(ProtocolFault) -> [UInt8] {
    let byteCount = Self.sealedByteCount(plaintext.count)
    var failure: ProtocolFault?
    let records = [UInt8](unsafeUninitializedCapacity: byteCount) { space, initializedCount in
      var (from, to) = (0, 0)
      while from < plaintext.count, failure == nil {
        let count = min(plaintext.count - from, Self.plaintextByteCountMax)
        let end = to + count + Self.overheadByteCount
        do throws(ProtocolFault) {
          try seal(
            UnsafeRawBufferPointer(rebasing: plaintext[from..<from + count]),
            into: UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: space[to..<end])))
          (from, to) = (from + count, end)
        } catch {
          failure = error
        }
      }
      initializedCount = to
    }
    if let failure { throw failure }
    return records
  }

  /// Opens the next record, without its length, into `output`: 16 bytes less. Throws
  /// `notAuthentic`, and the record may not be tried again.
  package mutating func open(
    _ sealed: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws(CryptoError) {
    guard number < Self.countMax else { throw .notAuthentic }
    try key.withUnsafeBytes { key throws(CryptoError) in
      try ChaChaPoly.open(
        sealed.bytes, key: key.bytes, number: number, ad: RawSpan(), into: output)
    }
    number += 1
  }
}
