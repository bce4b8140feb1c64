import CPosix
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An open file of a container in the native file system.
final class PosixBlockFile: BlockFile {
  private let descriptor: Int32
  private let name: String
  private let hasLock = Atomic(false)
  private let hasNoLocks = Atomic(false)

  init(descriptor: Int32, name: String) {
    self.descriptor = descriptor
    self.name = name
  }

  deinit {
    // Closing is not enough: a child that was forked a moment ago and has not called exec(2) yet
    // has the file open, too.
    if hasLock.load(ordering: .relaxed) { unlock(LockRange(offset: 0, count: 0)) }
    close(descriptor)
  }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
    try readFully(descriptor, into: buffer, at: offset, name: name)
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
    try writeFully(descriptor, bytes, at: offset, name: name)
  }

  func size() throws(IOFailure) -> UInt64 {
    var status = stat()
    try check(fstat(descriptor, &status) == 0 ? 0 : -errno, "fstat", name)
    return UInt64(status.st_size)
  }

  func identity() throws(IOFailure) -> FileIdentity {
    var status = stat()
    try check(fstat(descriptor, &status) == 0 ? 0 : -errno, "fstat", name)
    return FileIdentity(status)
  }

  func nextData(from offset: UInt64) throws(IOFailure) -> UInt64? {
    #if os(Linux)
      // SEEK_DATA
      let data = lseek(descriptor, off_t(offset), 3)
      if data >= 0 { return UInt64(data) }
      if errno == ENXIO { return nil }
    #endif
    // The file system does not support holes.
    return try offset < size() ? offset : nil
  }

  func truncate(to size: UInt64) throws(IOFailure) {
    while ftruncate(descriptor, off_t(size)) != 0 {
      if errno != EINTR { throw IOFailure("ftruncate", name, errno: errno) }
    }
  }

  func synchronize() throws(IOFailure) { try check(cposix_fdatasync(descriptor), "fdatasync", name) }

  func startWriteback(offset: UInt64, count: Int) {
    _ = cposix_start_writeback(descriptor, Int64(offset), Int64(count))
  }

  func preallocate(_ count: UInt64, leaving free: UInt64) {
    var system = statvfs()
    guard fstatvfs(descriptor, &system) == 0,
      UInt64(system.f_bavail) * UInt64(system.f_frsize) / 2 > count / 2 + free / 2
    else { return }
    // A failed call may have allocated blocks, which would be missing elsewhere.
    if cposix_preallocate(descriptor, Int64(count)) < 0 { ftruncate(descriptor, 0) }
  }

  func allocatedByteCount() throws(IOFailure) -> UInt64 {
    var status = stat()
    try check(fstat(descriptor, &status) == 0 ? 0 : -errno, "fstat", name)
    return UInt64(status.st_blocks) * 512
  }

  func allocate(_ count: UInt64) throws(IOFailure) {
    let status = cposix_allocate(descriptor, Int64(count))
    if status != -EOPNOTSUPP, status != -ENOTSUP {
      try check(status, "fallocate", name)
      return
    }
    let zeros = [UInt8](repeating: 0, count: 1 << 16)
    for offset in stride(from: 0, to: count, by: zeros.count) {
      try write(Array(zeros.prefix(Int(count - offset))), at: offset)
    }
  }

  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
    let status = cposix_punch_hole(descriptor, Int64(offset), Int64(count))
    // A file system without hole punching keeps the dead bytes, which is harmless.
    if status == -EOPNOTSUPP || status == -ENOTSUP { return }
    try check(status, "fallocate", name)
  }

  func dropCache() { _ = cposix_drop_cache(descriptor) }

  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
    let status = cposix_lock(descriptor, exclusive ? 1 : 0, Int64(range.offset), Int64(range.count))
    if status == -EAGAIN { return false }
    if !exclusive, noLocks.contains(-status) {
      hasNoLocks.store(true, ordering: .relaxed)
      return true
    }
    try check(status, "lock", name)
    hasLock.store(true, ordering: .relaxed)
    return true
  }

  func unlock(_ range: LockRange) { _ = cposix_unlock(descriptor, Int64(range.offset), Int64(range.count)) }

  var lacksLocks: Bool { hasNoLocks.load(ordering: .relaxed) }

  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool {
    if lacksLocks { return false }
    return try check(cposix_is_locked(descriptor, Int64(range.offset), Int64(range.count)), "lock", name) == 1
  }
}

extension FileIdentity {
  init(_ status: stat) {
    self.init(device: UInt64(truncatingIfNeeded: status.st_dev), inode: UInt64(status.st_ino))
  }
}

/// Calls pread(2) until the buffer is full or the file ends.
func readFully(
  _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64, name: String
) throws(IOFailure) -> Int {
  var done = 0
  while done < buffer.count {
    let count = pread(
      descriptor, buffer.baseAddress! + done, buffer.count - done, off_t(offset) + off_t(done))
    if count < 0 {
      if errno == EINTR { continue }
      throw IOFailure("read", name, errno: errno)
    }
    if count == 0 { break }
    done += count
  }
  return done
}

/// Calls pwrite(2) until everything is written.
func writeFully(
  _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: UInt64, name: String
) throws(IOFailure) {
  var done = 0
  while done < bytes.count {
    let count = pwrite(descriptor, bytes.baseAddress! + done, bytes.count - done, off_t(offset) + off_t(done))
    if count < 0 {
      if errno == EINTR { continue }
      throw IOFailure("write", name, errno: errno)
    }
    // Without this check, a device that takes nothing and reports no error would loop forever.
    if count == 0 { throw IOFailure("write", name, errno: ENOSPC) }
    done += count
  }
}
