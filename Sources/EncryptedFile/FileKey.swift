import Locks
public import SodiumPrimitives

/// The key of one file's contents, from which the keys of its segments are derived (FILE-FORMAT.md,
/// "Keys").
public struct FileKey: ~Copyable, Sendable {
  private let secret: SecretKey
  /// The keys of the sessions whose segments were sealed or opened last; files rarely have more
  /// than one.
  private let writerKeys = Guarded<[WriterKey]>([])
  private static let writerKeyCountMax = 16

  public init(_ secret: consuming SecretKey) { self.secret = secret }

  public var pool: KeyPool { secret.pool }

  /// The key for what one session wrote to the file.
  borrowing func writerKey(_ session: Identifier) throws(CryptoError) -> WriterKey {
    try writerKeys.withLock { known throws(CryptoError) in
      if let key = known.first(where: { $0.session == session }) { return key }
      if known.count == Self.writerKeyCountMax { known.removeAll() }
      let key = try WriterKey(session, of: secret)
      known.append(key)
      return key
    }
  }

  /// Writes the keys of a run's segments, `SecretKey.byteCount` bytes each, in their order. Whoever has one can open
  /// that segment, and no other (FILE-FORMAT.md, claim 6).
  public borrowing func writeSegmentKeys(
    of run: SegmentRun, to buffer: UnsafeMutableRawBufferPointer
  ) throws(CryptoError) {
    let byteCount = SecretKey.byteCount
    precondition(buffer.count == Int(run.count) * byteCount, "each segment has a key")
    let writerKey = try writerKey(run.writeNumber.session)
    for number in 0..<Int(run.count) {
      try writerKey.withSegmentKey(of: run.segment(number), else: .keysWiped) { key throws(CryptoError) in
        key.withUnsafeBytes {
          UnsafeMutableRawBufferPointer(rebasing: buffer[(number * byteCount)..<((number + 1) * byteCount)])
            .copyMemory(from: $0)
        }
      }
    }
  }

  /// Headers for a batch of segments, of which `first` is the first.
  borrowing func headers(_ count: Int, from first: SegmentRun) throws(CryptoError) -> MessageHeaders {
    try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { place throws(CryptoError) in
      first.writeNumber.session.store(to: place, at: 0)
      place.storeBytes(of: first.writeNumber.counter.littleEndian, toByteOffset: 16, as: UInt64.self)
      place.storeBytes(of: first.start.littleEndian, toByteOffset: 24, as: UInt64.self)
      return try secret.withUnsafeBytes { key in
        MessageHeaders(count, key: key.bytes, place: UnsafeRawBufferPointer(place).bytes)
      }
    }
  }
}
