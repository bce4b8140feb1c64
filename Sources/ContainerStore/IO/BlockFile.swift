/// An open file of a container, closed when the last reference is released.
package protocol BlockFile: AnyObject, Sendable {
  /// Fills the buffer up to the end of the file. Returns the number of bytes that were read.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int
  /// Writes everything or throws.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure)
  func size() throws(IOFailure) -> UInt64
  func identity() throws(IOFailure) -> FileIdentity
  /// The first offset at or after `offset` whose bytes are not known to be a hole; nil at the end
  /// of the file.
  func nextData(from offset: UInt64) throws(IOFailure) -> UInt64?
  func truncate(to size: UInt64) throws(IOFailure)
  /// Makes contents and size durable (fdatasync).
  func synchronize() throws(IOFailure)
  /// A hint to start write-back without waiting for it.
  func startWriteback(offset: UInt64, count: Int)
  /// A hint that the file, which is empty, will soon have `count` bytes. The file may get that
  /// length at once. Nothing is allocated unless `free` bytes stay free.
  func preallocate(_ count: UInt64, leaving free: UInt64)
  /// Bytes of the blocks that the file takes on the disk.
  func allocatedByteCount() throws(IOFailure) -> UInt64
  /// Gives the file `count` bytes in blocks of its own, so that the space is there when it is
  /// needed.
  func allocate(_ count: UInt64) throws(IOFailure)
  /// Deallocates the whole pages of the range; they then read as zeros.
  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure)
  /// Drops cached pages, so that later reads return what is on the disk.
  func dropCache()
  /// Tries to lock a range. Returns false when another holder has a conflicting lock.
  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool
  func unlock(_ range: LockRange)
  /// Whether another holder has any lock in the range.
  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool
  /// Whether the file system has no locks, which ``tryLock(_:exclusive:)`` has found: shared ones are
  /// granted then, and no other holder is seen.
  var lacksLocks: Bool { get }
}

extension BlockFile {
  package var lacksLocks: Bool { false }
}

/// The device and the inode of a file. No other file has the same while this one is open; on some file systems (FUSE) the numbers of a
/// file change.
package struct FileIdentity: Sendable, Hashable {
  package var device: UInt64
  package var inode: UInt64

  package init(device: UInt64, inode: UInt64) { (self.device, self.inode) = (device, inode) }
}

/// Bytes of the lock file (CONTAINER-FORMAT.md, "Locks and readers' pins").
package struct LockRange: Sendable, Hashable {
  package var offset: UInt64
  package var count: UInt64

  package static let writer = LockRange(offset: 0, count: 1)
  /// Held by a reader while it reads the state; pins everything.
  static let entry = LockRange(offset: 1 << 40, count: 1)
  static func pin(_ commit: UInt64) -> LockRange { LockRange(offset: 1 << 40 + 1 + commit, count: 1) }
  /// A place of nobody else, which shows whether two names lead to one file.
  static func mark() -> LockRange { LockRange(offset: 1 << 62 | UInt64.random(in: 0..<1 << 60), count: 1) }
  /// The entry and the pins of commits below `commit`.
  static func pins(below commit: UInt64) -> LockRange { LockRange(offset: 1 << 40, count: commit + 1) }
}

extension BlockFile {
  package func nextData(from offset: UInt64) throws(IOFailure) -> UInt64? {
    try offset < size() ? offset : nil
  }
  package func allocatedByteCount() throws(IOFailure) -> UInt64 { try size() }
  package func allocate(_ count: UInt64) throws(IOFailure) { try truncate(to: count) }

  /// `count` bytes, or fewer at the end of the file.
  package func read(_ count: Int, at offset: UInt64) throws(IOFailure) -> [UInt8] {
    let bytes = Result { () throws(IOFailure) in
      var failure: IOFailure?
      let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        do throws(IOFailure) {
          initialized = try read(
            into: UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: count), at: offset)
        } catch {
          failure = error
        }
      }
      if let failure { throw failure }
      return bytes
    }
    return try bytes.get()
  }

  package func write(_ bytes: [UInt8], at offset: UInt64) throws(IOFailure) {
    try bytes.withUnsafeBytes { buffer in
      Result { () throws(IOFailure) in try write(buffer, at: offset) }
    }.get()
  }
}
