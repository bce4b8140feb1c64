public import SodiumPrimitives

/// Why a file cannot be read at some place.
public enum SegmentError: Error, Equatable, Sendable {
  /// The stored segment of this grain is not what was sealed for this place.
  case notAuthentic(grain: UInt64)
  /// The stored bytes end inside the segment of this grain.
  case missingBytes(grain: UInt64)
  /// The catalog describes a run that cannot be: empty, too long, overlapping, or past the file's size.
  case damagedExtent(grain: UInt64)
  /// A segment that had just been sealed did not open to its plaintext: memory or cipher is faulty.
  case sealedWrongly(grain: UInt64)
  case crypto(CryptoError)
}

extension SegmentError: CustomStringConvertible {
  public var description: String {
    // A damaged catalog may name a grain whose first byte no number can hold.
    func place(_ grain: UInt64) -> String {
      let (byte, overflows) = grain.multipliedReportingOverflow(
        by: UInt64(SegmentLayout.plaintextByteCountMax))
      return overflows ? "grain \(grain)" : "byte \(byte)"
    }
    return switch self {
    case .notAuthentic(let grain):
      "the stored data at \(place(grain)) is not authentic: it was changed, moved or put back; what lies before can be read"
    case .missingBytes(let grain):
      "the stored data at \(place(grain)) is missing; what lies before can be read"
    case .damagedExtent(let grain): "the list of stored runs is impossible at \(place(grain))"
    case .sealedWrongly(let grain):
      "data sealed for \(place(grain)) did not open again: the memory or processor of this machine is faulty"
    case .crypto(let error): error.description
    }
  }
}

/// Seals and opens segments for one thread at a time. The stages of a unit, in this order: open, seal, check.
public final class SegmentCipher {
  public let stream: SecretStreamCipher
  private let ad: UnsafeMutableRawBufferPointer
  private var headers: UnsafeMutableRawBufferPointer

  public init(_ backend: CipherBackend = .preferred) {
    stream = SecretStreamCipher(backend)
    // FILE-FORMAT.md, "Associated data"; the length is set for each segment.
    ad = .allocate(byteCount: 24, alignment: 16)
    ad.copyBytes(from: label("OD1-segment"))
    ad.storeBytes(
      of: UInt32(SegmentLayout.plaintextByteCountMax).littleEndian, toByteOffset: 20, as: UInt32.self)
    headers = .allocate(byteCount: SegmentLayout.segmentsPerUnit * MessageHeader.stride, alignment: 64)
  }

  deinit {
    ad.deallocate()
    headers.deallocate()
  }

  // MARK: Open

  /// Opens the segment of one grain. The plaintext stands in the cipher's scratch memory until its next call.
  @inline(__always)
  public func open(
    _ stored: UnsafeRawBufferPointer, key: borrowing WriterKey, index: UInt64, counter: UInt64
  ) throws(SegmentError) -> UnsafeRawBufferPointer {
    let length = stored.count - SegmentLayout.overheadByteCount
    guard length >= 1, length <= SegmentLayout.plaintextByteCountMax else {
      throw .notAuthentic(grain: index)
    }
    bind(length: length)
    return try key.withSegmentKey(counter: counter, index: index) { segmentKey throws(SegmentError) in
      do throws(CryptoError) {
        return try stream.open(stored, key: segmentKey, ad: UnsafeRawBufferPointer(ad))
      } catch {
        throw error == .notAuthentic ? .notAuthentic(grain: index) : .crypto(error)
      }
    }
  }

  /// Opens every segment of a run and keeps nothing. Throws what is wrong with the first that does not open.
  public func check(
    run: Extent, stored: UnsafeRawBufferPointer, key: borrowing WriterKey
  ) throws(SegmentError) {
    for segment in try segments(of: run, in: stored) {
      _ = try open(segment.stored, key: key, index: segment.index, counter: segment.counter)
    }
  }

  /// Opens a whole run to `output`, which is written only as far as every segment before was authentic.
  public func open(
    run: Extent, stored: UnsafeRawBufferPointer, key: borrowing WriterKey,
    into output: UnsafeMutableRawBufferPointer
  ) throws(SegmentError) {
    precondition(output.count == run.plaintextByteCount, "the output has the run's plaintext length")
    var offset = 0
    for segment in try segments(of: run, in: stored) {
      let plaintext = try open(
        segment.stored, key: key, index: segment.index, counter: segment.counter)
      UnsafeMutableRawBufferPointer(rebasing: output[offset..<(offset + plaintext.count)])
        .copyMemory(from: plaintext)
      offset += plaintext.count
    }
  }

  // MARK: Seal

  /// Seals `plaintext` as the run that begins at grain `index`, under consecutive counters from `counter` on, to
  /// `output`, which has ``SegmentLayout/storedByteCount(_:)`` bytes.
  public func seal(
    _ plaintext: UnsafeRawBufferPointer, key: borrowing FileKey, writerKey: borrowing WriterKey,
    index: UInt64, counter: UInt64, into output: UnsafeMutableRawBufferPointer
  ) {
    precondition(!plaintext.isEmpty, "a run has at least one byte")
    precondition(output.count == SegmentLayout.storedByteCount(plaintext.count), "the output fits the run")
    let count = Int(SegmentLayout.segmentCount(UInt64(plaintext.count)))
    drawHeaders(count, key: key, session: writerKey.session, counter: counter, index: index)
    for i in 0..<count {
      let begin = i * SegmentLayout.plaintextByteCountMax
      let end = min(begin + SegmentLayout.plaintextByteCountMax, plaintext.count)
      let out = i * SegmentLayout.storedByteCountMax
      sealSegment(
        UnsafeRawBufferPointer(rebasing: plaintext[begin..<end]), header: i, key: writerKey,
        index: index + UInt64(i), counter: counter + UInt64(i),
        into: UnsafeMutableRawBufferPointer(
          rebasing: output[out..<(out + end - begin + SegmentLayout.overheadByteCount)]))
    }
  }

  /// Which grain a segment of a batch is for, and how many bytes of plaintext it has, 1 … 16384.
  public struct Place: Sendable {
    public var index: UInt64
    public var length: Int

    public init(index: UInt64, length: Int) {
      self.index = index
      self.length = length
    }
  }

  /// Seals segments that need not be neighbours in the file as one batch, under consecutive counters from `counter` on, back to back
  /// into `output`, which they fill. `plaintext` hands out the bytes of each in turn; it may open segments with this cipher, and what
  /// it throws ends the batch.
  public func seal(
    _ places: some RandomAccessCollection<Place>, key: borrowing FileKey, writerKey: borrowing WriterKey,
    counter: UInt64, into output: UnsafeMutableRawBufferPointer,
    plaintext: (Int) throws -> UnsafeRawBufferPointer
  ) throws {
    guard let first = places.first else { return }
    drawHeaders(
      places.count, key: key, session: writerKey.session, counter: counter, index: first.index)
    var begin = 0
    for (i, place) in places.enumerated() {
      let bytes = try plaintext(i)
      precondition(bytes.count == place.length, "the plaintext is as long as its place")
      let end = begin + place.length + SegmentLayout.overheadByteCount
      sealSegment(
        bytes, header: i, key: writerKey, index: place.index, counter: counter + UInt64(i),
        into: UnsafeMutableRawBufferPointer(rebasing: output[begin..<end]))
      begin = end
    }
    precondition(begin == output.count, "the output fits the segments")
  }

  // MARK: Open, seal, check

  /// What a run is sealed as in its new file.
  public struct Target: Sendable {
    /// The counter of the first segment.
    public var counter: UInt64
    /// Every how many segments one is opened again and compared with its plaintext; 0: none.
    public var checkInterval: Int

    public init(counter: UInt64, checkInterval: Int) {
      self.counter = counter
      self.checkInterval = checkInterval
    }
  }

  /// Opens each segment of a run and seals it at once, same grains, for another file, so that the plaintext stays in the
  /// core's cache and never in a buffer that outlives the segment. `output` is as long as `stored`.
  public func reseal(
    run: Extent, stored: UnsafeRawBufferPointer, key: borrowing WriterKey,
    to target: Target, targetKey: borrowing FileKey, targetWriterKey: borrowing WriterKey,
    into output: UnsafeMutableRawBufferPointer
  ) throws(SegmentError) {
    precondition(output.count == run.storedByteCount, "the output has the run's stored length")
    drawHeaders(
      Int(run.count), key: targetKey, session: targetWriterKey.session, counter: target.counter,
      index: run.start)
    for (i, segment) in try segments(of: run, in: stored).enumerated() {
      let plaintext = try open(
        segment.stored, key: key, index: segment.index, counter: segment.counter)
      let counter = target.counter + UInt64(i)
      let begin = i * SegmentLayout.storedByteCountMax
      let sealed = UnsafeMutableRawBufferPointer(rebasing: output[begin..<(begin + segment.stored.count)])
      sealSegment(
        plaintext, header: i, key: targetWriterKey, index: segment.index, counter: counter, into: sealed)
      if target.checkInterval > 0, counter % UInt64(target.checkInterval) == 0 {
        try check(
          UnsafeRawBufferPointer(sealed), opensTo: plaintext, key: targetWriterKey, index: segment.index,
          counter: counter)
      }
    }
  }

  /// Opens what was just sealed and compares it with a copy of the plaintext: tags prove what was stored, not that
  /// the right thing was stored.
  public func check(
    _ sealed: UnsafeRawBufferPointer, opensTo plaintext: UnsafeRawBufferPointer,
    key: borrowing WriterKey, index: UInt64, counter: UInt64
  ) throws(SegmentError) {
    try withUnsafeTemporaryAllocation(byteCount: plaintext.count, alignment: 64) {
      copy throws(SegmentError) in
      defer { wipe(copy) }
      // The plaintext may stand in the scratch memory that opening overwrites.
      copy.copyMemory(from: plaintext)
      let opened: UnsafeRawBufferPointer
      do {
        opened = try open(sealed, key: key, index: index, counter: counter)
      } catch {
        throw .sealedWrongly(grain: index)
      }
      guard KeyedHash.sameContents(opened, UnsafeRawBufferPointer(copy)) else {
        throw .sealedWrongly(grain: index)
      }
    }
  }

  // MARK: Parts

  private struct StoredSegment {
    var stored: UnsafeRawBufferPointer
    var index: UInt64
    var counter: UInt64
  }

  private func segments(
    of run: Extent, in stored: UnsafeRawBufferPointer
  ) throws(SegmentError) -> LazyMapSequence<Range<Int>, StoredSegment> {
    guard stored.count == run.storedByteCount else {
      throw .missingBytes(grain: run.start + UInt64(stored.count / SegmentLayout.storedByteCountMax))
    }
    return (0..<Int(run.count)).lazy.map { i in
      let begin = i * SegmentLayout.storedByteCountMax
      let end = min(begin + SegmentLayout.storedByteCountMax, stored.count)
      return StoredSegment(
        stored: UnsafeRawBufferPointer(rebasing: stored[begin..<end]), index: run.start + UInt64(i),
        counter: run.writeNumber.counter + UInt64(i))
    }
  }

  @inline(__always)
  private func sealSegment(
    _ plaintext: UnsafeRawBufferPointer, header: Int, key: borrowing WriterKey, index: UInt64,
    counter: UInt64, into output: UnsafeMutableRawBufferPointer
  ) {
    bind(length: plaintext.count)
    let begin = header * MessageHeader.stride
    key.withSegmentKey(counter: counter, index: index) { segmentKey in
      stream.seal(
        plaintext, key: segmentKey, header: UnsafeRawBufferPointer(rebasing: headers[begin..<(begin + 24)]),
        ad: UnsafeRawBufferPointer(ad), into: output)
    }
  }

  private func drawHeaders(
    _ count: Int, key: borrowing FileKey, session: Identifier, counter: UInt64, index: UInt64
  ) {
    let byteCount = count * MessageHeader.stride
    if headers.count < byteCount {
      headers.deallocate()
      headers = .allocate(byteCount: byteCount, alignment: 64)
    }
    withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { place in
      session.store(to: place, at: 0)
      place.storeBytes(of: counter.littleEndian, toByteOffset: 16, as: UInt64.self)
      place.storeBytes(of: index.littleEndian, toByteOffset: 24, as: UInt64.self)
      key.withUnsafeBytes {
        MessageHeader.fill(
          UnsafeMutableRawBufferPointer(rebasing: headers[0..<byteCount]), key: $0,
          place: UnsafeRawBufferPointer(place))
      }
    }
  }

  @inline(__always)
  private func bind(length: Int) {
    ad.storeBytes(of: UInt32(length).littleEndian, toByteOffset: 16, as: UInt32.self)
  }
}
