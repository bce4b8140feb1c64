/// Space that is held back, so that files can still be removed on a full disk: a removal is written
/// to the journal before it gives anything back.
struct Reserve {
  private static let name = "reserve"
  static let byteCounts: ClosedRange<UInt64> = 256 << 10...64 << 20

  private let io: any BlockIO
  /// Whether there is space to give up.
  private(set) var isHeld = false

  init(io: any BlockIO) { self.io = io }

  /// Finds the reserve that an earlier opening has left.
  mutating func find() { isHeld = (try? Self.byteCount(io)) ?? 0 > 0 }

  /// Allocates `wanted` bytes, also after the reserve was given up. Returns false when there is no
  /// room; nothing else depends on the reserve.
  mutating func take(_ wanted: UInt64) -> Bool {
    do throws(IOFailure) {
      let file: any BlockFile
      do throws(IOFailure) { file = try io.open(Self.name, .readWrite) } catch {
        guard error.errno == missingFile else { throw error }
        file = try io.open(Self.name, .createNew)
      }
      let size = try file.size()
      if size > 2 * wanted { try file.truncate(to: wanted) }
      // A smaller reserve is enough until twice its size is wanted.
      if size < wanted / 2 { try file.allocate(wanted) }
      isHeld = true
      return true
    } catch {
      find()
      return false
    }
  }

  mutating func giveUp() throws(IOFailure) {
    isHeld = false
    try io.open(Self.name, .readWrite).truncate(to: 0)
  }

  /// Bytes that are held back now.
  static func byteCount(_ io: any BlockIO) throws(IOFailure) -> UInt64 {
    do {
      return try io.open(name, .read).allocatedByteCount()
    } catch {
      guard error.errno == missingFile else { throw error }
      return 0
    }
  }
}
