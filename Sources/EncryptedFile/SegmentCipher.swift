public import SodiumPrimitives

/// Opens segments, and seals those of a ``SegmentBatch``; for one thread at a time (FILE-FORMAT.md,
/// "The segment").
///
/// A segment's key follows from the file, the session, the counter and the index, so the segment
/// opens at no other place; the associated data binds its length.
public final class SegmentCipher {
  public let stream: SecretStreamCipher
  private let ad: UnsafeMutableRawBufferPointer

  /// `pool`: that of the keys which it seals with.
  public init(_ backend: CipherBackend = .preferred, in pool: KeyPool = .shared) {
    stream = SecretStreamCipher(backend, in: pool)
    // FILE-FORMAT.md, "Associated data"; `bind` sets the length for each segment.
    ad = .allocate(byteCount: 24, alignment: 16)
    ad.copyBytes(from: label("OD1-segment"))
    ad.storeBytes(
      of: UInt32(SegmentLayout.plaintextByteCountMax).littleEndian, toByteOffset: 20, as: UInt32.self)
  }

  deinit { ad.deallocate() }

  // MARK: Runs

  /// Opens a run, and appends the plaintext of its segments to `output` up to the first that does
  /// not open.
  public func open(
    _ stored: RawSpan, of run: SegmentRun, key: borrowing FileKey, into output: inout OutputRawSpan
  ) throws(SegmentError) {
    let writerKey = try openingKey(of: run, stored, key)
    defer { forgetForeign(writerKey) }
    for number in 0..<Int(run.count) {
      output.append(copying: try openSegment(number, of: run, in: stored, key: writerKey))
    }
  }

  /// Opens every segment of a run and keeps nothing.
  public func check(
    _ stored: RawSpan, of run: SegmentRun, key: borrowing FileKey
  ) throws(SegmentError) {
    let writerKey = try openingKey(of: run, stored, key)
    defer { forgetForeign(writerKey) }
    for number in 0..<Int(run.count) {
      _ = try openSegment(number, of: run, in: stored, key: writerKey)
    }
  }

  // MARK: Segments

  /// The key for the segments of a stored run. Throws when the stored bytes end too soon.
  func openingKey(
    of run: SegmentRun, _ stored: RawSpan, _ key: borrowing FileKey
  ) throws(SegmentError) -> WriterKey {
    guard stored.byteCount == run.storedByteCount else {
      throw .missingBytes(grain: run.start + UInt64(stored.byteCount / SegmentLayout.storedByteCountMax))
    }
    do { return try key.writerKey(run.writeNumber.session) } catch { throw .crypto(error) }
  }

  /// Opens one segment of a run. The plaintext is in the cipher's scratch memory until its next
  /// call.
  @inline(__always)
  func openSegment(
    _ number: Int, of run: SegmentRun, in stored: RawSpan, key: WriterKey
  ) throws(SegmentError) -> UnsafeRawBufferPointer {
    let segment = run.segment(number)
    let begin = number * SegmentLayout.storedByteCountMax
    return try openSegment(
      stored.extracting(begin..<(begin + segment.storedByteCount)), as: segment, key: key)
  }

  @inline(__always)
  private func openSegment(
    _ stored: RawSpan, as segment: SegmentRun, key: WriterKey
  ) throws(SegmentError) -> UnsafeRawBufferPointer {
    guard segment.lastLength >= 1, segment.lastLength <= SegmentLayout.plaintextByteCountMax else {
      throw .notAuthentic(grain: segment.start)
    }
    return try key.withSegmentKey(of: segment, else: .crypto(.keysWiped)) { segmentKey throws(SegmentError) in
      if key.pool === stream.pool { return try openSegment(stored, key: segmentKey, grain: segment.start) }
      // Whoever shuts the pool of the cipher overwrites what it keeps.
      return try stream.pool.inside(else: .crypto(.keysWiped)) { () throws(SegmentError) in
        try openSegment(stored, key: segmentKey, grain: segment.start)
      }
    }
  }

  /// The keys of another container than that whose cipher this is are wiped without it.
  func forgetForeign(_ key: WriterKey) {
    guard key.pool !== stream.pool else { return }
    // Behind a shut gate it has forgotten.
    try? stream.pool.inside(else: .keysWiped) { () throws(CryptoError) in stream.forgetOpeningKey() }
  }

  /// Opens a segment with its own key. The plaintext is in the cipher's scratch memory until its
  /// next call; it is as long as the stored bytes say.
  @inline(__always)
  func openSegment(
    _ stored: RawSpan, key: RawSpan, grain: UInt64
  ) throws(SegmentError) -> UnsafeRawBufferPointer {
    let length = stored.byteCount - SegmentLayout.overheadByteCount
    guard 1...SegmentLayout.plaintextByteCountMax ~= length else { throw .notAuthentic(grain: grain) }
    bind(length: UInt32(length))
    do throws(CryptoError) {
      return try stream.open(stored, key: key, ad: UnsafeRawBufferPointer(ad).bytes)
    } catch {
      throw error == .notAuthentic ? .notAuthentic(grain: grain) : .crypto(error)
    }
  }

  @inline(__always)
  func sealSegment(
    _ plaintext: RawSpan, as segment: SegmentRun, header: RawSpan, key: WriterKey,
    into output: inout OutputRawSpan
  ) throws(SegmentError) {
    bind(length: segment.lastLength)
    try key.withSegmentKey(of: segment, else: .crypto(.keysWiped)) { segmentKey throws(SegmentError) in
      stream.seal(
        plaintext, key: segmentKey, header: header, ad: UnsafeRawBufferPointer(ad).bytes, into: &output)
    }
  }

  /// Opens a segment that was just sealed and compares it with a copy of the plaintext. A tag
  /// proves which bytes were sealed, not that they were the right ones.
  func checkSegment(
    _ sealed: RawSpan, as segment: SegmentRun, opensTo plaintext: RawSpan, key: WriterKey
  ) throws(SegmentError) {
    try withUnsafeTemporaryAllocation(byteCount: plaintext.byteCount, alignment: 64) {
      copy throws(SegmentError) in
      defer { wipe(copy) }
      // The plaintext may be in the scratch memory that opening overwrites.
      plaintext.withUnsafeBytes { copy.copyMemory(from: $0) }
      do throws(SegmentError) {
        let opened = try openSegment(sealed, as: segment, key: key)
        if KeyedHash.sameContents(opened, UnsafeRawBufferPointer(copy)) { return }
      } catch {
        if error == .crypto(.keysWiped) { throw error }
      }
      throw .sealedWrongly(grain: segment.start)
    }
  }

  @inline(__always)
  private func bind(length: UInt32) {
    ad.storeBytes(of: length.littleEndian, toByteOffset: 16, as: UInt32.self)
  }
}
