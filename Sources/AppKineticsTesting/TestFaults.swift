import AppKinetics
import ContainerStore
import Locks
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What goes wrong for one app of a test, in its process now and in the next ones.
///
/// ```swift
/// import AppKineticsTesting
///
/// try await withTestApps { apps in
///   let notes = try await apps.start("com.example.notes")
///   notes.faults.hasFullDisk = true
///   do { try notes.put("A file for you", at: "/note.txt") } catch { print("no room") }
///   notes.faults.hasFullDisk = false
/// }
/// ```
public final class TestFaults: Sendable {
  private let isDiskFull = Guarded(false)
  package let replies = TestGate()

  init() {}

  /// Whether nothing that takes room can be stored in the app's container, and beside it: the system reports `ENOSPC`, and no free bytes.
  public var hasFullDisk: Bool {
    get { isDiskFull.withLock { $0 } }
    set { isDiskFull.withLock { $0 = newValue } }
  }

  /// Whether replies of the app, errors too, wait until this is false again.
  public var holdsReplies: Bool {
    get { replies.isShut }
    set { newValue ? replies.shut() : replies.open() }
  }

  var containerOptions: Container.Options {
    var options = Container.Options()
    options.passwordHash = .cheapest
    options.disk = { path in FaultyDisk(PosixBlockIO(path), isFull: { self.hasFullDisk }) }
    return options
  }
}

/// A directory of the native file system, on a disk that may be full.
private final class FaultyDisk: BlockIO {
  private let disk: any BlockIO
  private let isFull: @Sendable () -> Bool

  init(_ disk: any BlockIO, isFull: @escaping @Sendable () -> Bool) {
    (self.disk, self.isFull) = (disk, isFull)
  }

  var place: String { disk.place }
  var isThere: Bool { disk.isThere }
  var directory: OpenDirectory? { disk.directory }

  func requireDirectory(_ path: String) throws(IOFailure) { try disk.requireDirectory(path) }

  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    FaultyFile(try disk.open(path, access), path, isFull: isFull)
  }

  func identity(of path: String) throws(IOFailure) -> FileIdentity? { try disk.identity(of: path) }
  func fileNames(in directory: String) throws(IOFailure) -> [String] { try disk.fileNames(in: directory) }

  func createDirectory(_ path: String) throws(IOFailure) {
    if isFull() { throw IOFailure("mkdir", path, errno: ENOSPC) }
    try disk.createDirectory(path)
  }

  func removeDirectory(_ path: String) throws(IOFailure) { try disk.removeDirectory(path) }
  func remove(_ path: String) throws(IOFailure) { try disk.remove(path) }
  func rename(_ path: String, to newPath: String) throws(IOFailure) { try disk.rename(path, to: newPath) }
  func synchronizeDirectory(_ path: String) throws(IOFailure) { try disk.synchronizeDirectory(path) }

  func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) {
    let space = try disk.space()
    return isFull() ? (space.byteCount, 0) : space
  }
}

/// A file there. What is in it can be replaced, and nothing can be added.
private final class FaultyFile: BlockFile {
  private let file: any BlockFile
  private let path: String
  private let isFull: @Sendable () -> Bool

  init(_ file: any BlockFile, _ path: String, isFull: @escaping @Sendable () -> Bool) {
    (self.file, self.path, self.isFull) = (file, path, isFull)
  }

  private func requireRoom(upTo end: UInt64) throws(IOFailure) {
    guard isFull(), try file.size() < end else { return }
    throw IOFailure("write", path, errno: ENOSPC)
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
    try requireRoom(upTo: offset + UInt64(bytes.count))
    try file.write(bytes, at: offset)
  }

  func allocate(_ count: UInt64) throws(IOFailure) {
    try requireRoom(upTo: count)
    try file.allocate(count)
  }

  func preallocate(_ count: UInt64, leaving free: UInt64) {
    if !isFull() { file.preallocate(count, leaving: free) }
  }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
    try file.read(into: buffer, at: offset)
  }
  func size() throws(IOFailure) -> UInt64 { try file.size() }
  func identity() throws(IOFailure) -> FileIdentity { try file.identity() }
  func nextData(from offset: UInt64) throws(IOFailure) -> UInt64? { try file.nextData(from: offset) }
  func truncate(to size: UInt64) throws(IOFailure) { try file.truncate(to: size) }
  func synchronize() throws(IOFailure) { try file.synchronize() }
  func startWriteback(offset: UInt64, count: Int) { file.startWriteback(offset: offset, count: count) }
  func allocatedByteCount() throws(IOFailure) -> UInt64 { try file.allocatedByteCount() }
  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
    try file.punchHole(offset: offset, count: count)
  }
  func dropCache() { file.dropCache() }
  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
    try file.tryLock(range, exclusive: exclusive)
  }
  func unlock(_ range: LockRange) { file.unlock(range) }
  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool { try file.isLocked(range) }
  var lacksLocks: Bool { file.lacksLocks }
}
