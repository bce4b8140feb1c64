import SodiumPrimitives

/// Writes a file's contents from front to back: gathers a unit (1 MiB), seals it, and hands it on to be stored.
///
/// When a unit could not be sealed or stored, it is lost, and every later call throws the same error.
public struct EncryptedFileWriter: ~Copyable {
  /// Stores a sealed run and says where.
  public typealias Store = (UnsafeRawBufferPointer) throws -> (slab: UInt32, offset: UInt64)

  public private(set) var size: UInt64 = 0
  /// Of the runs stored so far, in order.
  public private(set) var extents: [Extent] = []

  private let key: FileKey
  /// The key of the session under which the last run was sealed.
  private var writerKey: WriterKey?
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

  public mutating func append(_ bytes: UnsafeRawBufferPointer) throws {
    if let failure { throw failure }
    var rest = bytes
    if !pending.isEmpty {
      let count = min(rest.count, Self.unit - pending.count)
      pending.append(contentsOf: rest[0..<count])
      rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      if pending.count == Self.unit { try sealPending() }
    }
    while rest.count >= Self.unit {
      try sealRun(UnsafeRawBufferPointer(rebasing: rest[0..<Self.unit]))
      rest = UnsafeRawBufferPointer(rebasing: rest[Self.unit...])
    }
    pending.append(contentsOf: rest)
  }

  /// Seals what is left. Nothing may be appended after it.
  public mutating func finish() throws {
    if let failure { throw failure }
    if !pending.isEmpty { try sealPending() }
  }

  private mutating func sealPending() throws {
    var unit: [UInt8] = []
    swap(&unit, &pending)
    defer { unit.withUnsafeMutableBytes { wipe($0) } }
    try unit.withUnsafeBytes { try sealRun($0) }
  }

  private mutating func sealRun(_ plaintext: UnsafeRawBufferPointer) throws {
    precondition(
      size.isMultiple(of: UInt64(SegmentLayout.plaintextByteCountMax)), "nothing is appended after finish()")
    let count = Int(SegmentLayout.segmentCount(UInt64(plaintext.count)))
    let number = takeNumbers(count)
    let index = size / UInt64(SegmentLayout.plaintextByteCountMax)
    let storedCount = SegmentLayout.storedByteCount(plaintext.count)
    if sealed.count < storedCount { sealed = [UInt8](repeating: 0, count: storedCount) }
    let place: (slab: UInt32, offset: UInt64)
    do {
      if writerKey?.session != number.session { writerKey = try key.writerKey(session: number.session) }
      sealed.withUnsafeMutableBytes {
        cipher.seal(
          plaintext, key: key, writerKey: writerKey!, index: index, counter: number.counter,
          into: UnsafeMutableRawBufferPointer(rebasing: $0[0..<storedCount]))
      }
      place = try sealed.withUnsafeBytes {
        try store(UnsafeRawBufferPointer(rebasing: $0[0..<storedCount]))
      }
    } catch {
      failure = error
      throw error
    }
    extents.append(
      Extent(
        start: index, count: UInt32(count),
        lastLength: UInt32(plaintext.count - (count - 1) * SegmentLayout.plaintextByteCountMax),
        writeNumber: number, slab: place.slab, offset: place.offset))
    size += UInt64(plaintext.count)
  }
}
