public import SodiumPrimitives

/// Segments of one file that are sealed together: their write numbers are consecutive, and their
/// headers come from one seed (FILE-FORMAT.md, "The header").
///
/// The segments of a batch need not be neighbours in the file. Between two of them the cipher may
/// open others.
public struct SegmentBatch: ~Copyable {
  private let cipher: SegmentCipher
  private let key: WriterKey
  private let headers: MessageHeaders
  private let count: Int
  private var sealedCount = 0
  /// The write number of the next segment.
  private var next: WriteNumber

  /// A batch of `count` segments, the first of which is that of `first`.
  public init(
    _ count: Int, from first: SegmentRun, key: borrowing FileKey, by cipher: SegmentCipher
  ) throws(CryptoError) {
    let writerKey = try key.writerKey(first.writeNumber.session)
    let headers = try key.headers(count, from: first)
    self.key = writerKey
    self.cipher = cipher
    self.count = count
    self.headers = headers
    next = first.writeNumber
  }

  /// A batch of the segments of one run.
  public init(
    _ run: SegmentRun, key: borrowing FileKey, by cipher: SegmentCipher
  ) throws(CryptoError) {
    try self.init(Int(run.count), from: run, key: key, by: cipher)
  }

  /// Seals plaintext as the next segments of the batch, which are a run, and appends them to
  /// `output`.
  public mutating func seal(
    _ plaintext: RawSpan, as run: SegmentRun, into output: inout OutputRawSpan
  ) throws(SegmentError) {
    precondition(plaintext.byteCount == run.plaintextByteCount, "the plaintext is as long as its run")
    for number in 0..<Int(run.count) {
      let segment = run.segment(number)
      let begin = number * SegmentLayout.plaintextByteCountMax
      try seal(
        plaintext.extracting(begin..<(begin + Int(segment.lastLength))), asSegment: segment, into: &output)
    }
  }

  /// Opens the segments of a stored run and seals them, with the same indexes, as the next segments
  /// of the batch. The plaintext stays in the core's cache, and in no buffer that outlives the
  /// segment. One segment of every `checkInterval` is opened again and compared with its plaintext;
  /// none if it is 0.
  public mutating func reseal(
    _ stored: RawSpan, of source: SegmentRun, key sourceKey: borrowing FileKey, checkInterval: Int,
    into output: inout OutputRawSpan
  ) throws(SegmentError) {
    let sourceKey = try cipher.openingKey(of: source, stored, sourceKey)
    defer { cipher.forgetForeign(sourceKey) }
    for number in 0..<Int(source.count) {
      let plaintext = try cipher.openSegment(number, of: source, in: stored, key: sourceKey)
      try seal(plaintext.bytes, at: source.start + UInt64(number), checkInterval, into: &output)
    }
  }

  /// Opens one stored segment with its own key of 32 bytes and seals it as the next segment of the
  /// batch, at grain `index`; see ``reseal(_:of:key:checkInterval:into:)``.
  public mutating func reseal(
    _ stored: RawSpan, segmentKey: RawSpan, index: UInt64, checkInterval: Int,
    into output: inout OutputRawSpan
  ) throws(SegmentError) {
    // The cipher is used inside of its own gate alone.
    try key.pool.inside(else: .crypto(.keysWiped)) { () throws(SegmentError) in
      let plaintext = try cipher.openSegment(stored, key: segmentKey, grain: index)
      try seal(plaintext.bytes, at: index, checkInterval, into: &output)
    }
  }

  @inline(__always)
  private mutating func seal(
    _ plaintext: RawSpan, at index: UInt64, _ checkInterval: Int, into output: inout OutputRawSpan
  ) throws(SegmentError) {
    let segment = SegmentRun(start: index, plaintextByteCount: plaintext.byteCount, writeNumber: next)
    try seal(plaintext, asSegment: segment, into: &output)
    guard checkInterval > 0, segment.writeNumber.counter % UInt64(checkInterval) == 0 else { return }
    try cipher.checkSegment(
      output.bytes.extracting(last: segment.storedByteCount), as: segment, opensTo: plaintext, key: key)
  }

  @inline(__always)
  private mutating func seal(
    _ plaintext: RawSpan, asSegment segment: SegmentRun, into output: inout OutputRawSpan
  ) throws(SegmentError) {
    precondition(segment.writeNumber == next, "the write numbers of a batch are consecutive")
    precondition(sealedCount < count, "the batch has a header for each of its segments")
    try cipher.sealSegment(
      plaintext, as: segment, header: headers[sealedCount].bytes, key: key, into: &output)
    sealedCount += 1
    next = next.advanced(by: 1)
  }
}
