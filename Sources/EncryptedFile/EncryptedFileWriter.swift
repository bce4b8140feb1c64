import SodiumPrimitives

/// Writes a file's contents from front to back: gathers a unit (1 MiB), seals it, and passes it on
/// to be stored.
///
/// A unit that could not be sealed or stored is lost, and every later call throws the same error.
public struct EncryptedFileWriter: ~Copyable {
  /// Stores a sealed run and returns its location.
  public typealias Store = (UnsafeRawBufferPointer) throws -> (slab: UInt32, offset: UInt64)

  public private(set) var size: UInt64 = 0
  /// The runs stored so far, in order.
  public private(set) var extents: [Extent] = []

  private let key: FileKey
  private let cipher: SegmentCipher
  private let takeNumbers: (Int) -> WriteNumber
  private let store: Store
  private var pending: [UInt8] = []
  private var sealed: [UInt8] = []
  private var failure: (any Error)?

  private static let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax

  /// `takeNumbers` reserves so many consecutive write numbers of one session and returns the first.
  public init(
    key: consuming FileKey, cipher: SegmentCipher, takeNumbers: @escaping (Int) -> WriteNumber,
    store: @escaping Store
  ) {
    self.key = key
    self.cipher = cipher
    self.takeNumbers = takeNumbers
    self.store = store
  }

  public mutating func append(_ bytes: RawSpan) throws {
    if let failure { throw failure }
    var rest = bytes
    if !pending.isEmpty {
      let count = min(rest.byteCount, Self.unit - pending.count)
      rest.extracting(first: count).withUnsafeBytes { pending.append(contentsOf: $0) }
      rest = rest.extracting(droppingFirst: count)
      if pending.count == Self.unit { try sealPending() }
    }
    while rest.byteCount >= Self.unit {
      try sealRun(rest.extracting(first: Self.unit))
      rest = rest.extracting(droppingFirst: Self.unit)
    }
    rest.withUnsafeBytes { pending.append(contentsOf: $0) }
  }

  /// Seals the remaining bytes. Nothing may be appended after it.
  public mutating func finish() throws {
    if let failure { throw failure }
    if !pending.isEmpty { try sealPending() }
  }

  private mutating func sealPending() throws {
    var unit: [UInt8] = []
    swap(&unit, &pending)
    defer { unit.withUnsafeMutableBytes { wipe($0) } }
    try sealRun(unit.span.bytes)
  }

  private mutating func sealRun(_ plaintext: RawSpan) throws {
    precondition(
      size.isMultiple(of: UInt64(SegmentLayout.plaintextByteCountMax)), "nothing is appended after finish()")
    let segmentCount = Int(SegmentLayout.segmentCount(UInt64(plaintext.byteCount)))
    let run = SegmentRun(
      start: size / UInt64(SegmentLayout.plaintextByteCountMax), plaintextByteCount: plaintext.byteCount,
      writeNumber: takeNumbers(segmentCount))
    do {
      try seal(plaintext, as: run)
      let (slab, offset) = try sealed.withUnsafeBytes {
        try store(UnsafeRawBufferPointer(rebasing: $0[0..<run.storedByteCount]))
      }
      extents.append(Extent(run, slab: slab, offset: offset))
      size += UInt64(plaintext.byteCount)
    } catch {
      failure = error
      throw error
    }
  }

  private mutating func seal(_ plaintext: RawSpan, as run: SegmentRun) throws {
    let count = run.storedByteCount
    if sealed.count < count { sealed = [UInt8](repeating: 0, count: count) }
    try sealed.withUnsafeMutableBytes { buffer in
      var output = OutputRawSpan(buffer: buffer, initializedCount: 0)
      var batch = try SegmentBatch(run, key: key, by: cipher)
      try batch.seal(plaintext, as: run, into: &output)
    }
  }
}
