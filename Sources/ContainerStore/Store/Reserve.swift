import EncryptedFile

/// Space and inodes that are held back, so that files can still be removed on a full disk: a removal
/// is written to the journal before it gives anything back.
struct Reserve {
  /// The first file has the bytes. Each is an inode as well: the first commit of an opening makes two
  /// files, and so does the table that takes their place.
  static let names = ["reserve", "reserve.1", "reserve.2", "reserve.3"]
  static let byteCounts: ClosedRange<UInt64> = 256 << 10...64 << 20
  /// The part that changes get which give nothing back.
  private static let lentByteCount: UInt64 = 128 << 10
  private static let lentFileCount = 2

  private let io: any BlockIO
  /// Bytes that are held.
  private(set) var byteCount: UInt64 = 0
  /// Of the files, how many are there; the last ones are missing.
  private var fileCount = 0

  init(io: any BlockIO) { self.io = io }

  var isHeld: Bool { byteCount > 0 || fileCount > 0 }

  /// Finds the reserve that an earlier opening has left.
  mutating func find() {
    byteCount = (try? Self.byteCount(io)) ?? 0
    fileCount = Self.names.prefix { (try? io.identity(of: $0)).flatMap { $0 } != nil }.count
  }

  /// Holds `wanted` bytes, or as many as there are. Returns whether that is enough, which three quarters
  /// are; nil when something other than a full disk prevents it, on which nothing
  /// depends.
  mutating func take(_ wanted: UInt64) -> Bool? {
    if fileCount == Self.names.count, (wanted / 4 * 3...2 * wanted).contains(byteCount) { return true }
    defer { find() }
    // Others need space, too: where it is short, half of what is left is enough.
    let free = (try? io.space().freeByteCount) ?? .max
    let (sum, overflows) = byteCount.addingReportingOverflow(free / 2)
    let target = overflows ? wanted : min(wanted, max(Self.byteCounts.lowerBound, sum / 4096 * 4096))
    var isWhole = true
    do throws(IOFailure) {
      for name in Self.names {
        do throws(IOFailure) { _ = try openOrCreate(name) } catch {
          guard noSpace.contains(error.errno) else { throw error }
          isWhole = false
        }
      }
      let file = try io.open(Self.names[0], .readWrite)
      if try file.size() > 2 * wanted { try file.truncate(to: wanted) }
      let taken = try file.allocatedByteCount()
      if taken < target / 4 * 3, try !allocate(target, in: file, from: taken) { isWhole = false }
      return isWhole
    } catch {
      return noSpace.contains(error.errno) ? false : nil
    }
  }

  /// Allocates as much of `wanted` as there is room for. Returns whether that is enough.
  private func allocate(_ wanted: UInt64, in file: any BlockFile, from taken: UInt64) throws(IOFailure)
    -> Bool
  {
    var taken = taken
    var part = wanted - taken
    while part >= 4096, taken < wanted {
      let size = min(wanted, taken + part)
      do throws(IOFailure) {
        try file.allocate(size)
        taken = size
      } catch {
        guard noSpace.contains(error.errno) else { throw error }
        try file.truncate(to: taken)  // a failed call may have allocated blocks
        part = part / 8192 * 4096
      }
    }
    return taken >= wanted / 4 * 3
  }

  private func openOrCreate(_ name: String) throws(IOFailure) -> any BlockFile {
    do throws(IOFailure) { return try io.open(name, .readWrite) } catch {
      // A file that has another name is somebody else's as well.
      if error.errno == otherName { try io.remove(name) } else if error.errno != missingFile { throw error }
      return try io.open(name, .createNew)
    }
  }

  /// Gives everything up.
  mutating func giveUp() throws(IOFailure) {
    defer { find() }
    for name in Self.names.reversed() where try io.identity(of: name) != nil { try io.remove(name) }
  }

  /// Gives a part up, and keeps at least half of what is wanted. Throws when there is no more.
  mutating func lend(wanted: UInt64) throws(IOFailure) {
    defer { find() }
    guard byteCount > wanted / 2, fileCount == Self.names.count else {
      throw IOFailure("truncate", Self.names[0], errno: noSpace.first!)
    }
    try io.open(Self.names[0], .readWrite)
      .truncate(to: max(wanted / 2, byteCount - min(byteCount, Self.lentByteCount)))
    for name in Self.names.suffix(Self.lentFileCount) { try io.remove(name) }
  }

  /// Bytes that are held back now.
  static func byteCount(_ io: any BlockIO) throws(IOFailure) -> UInt64 {
    do {
      return try io.open(names[0], .read).allocatedByteCount()
    } catch {
      guard error.errno == missingFile else { throw error }
      return 0
    }
  }
}
