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
  /// Bytes that are free on a full disk: those that were given back since it was full. Nil: the
  /// disk is as it is.
  private let freeByteCount = Guarded<UInt64?>(nil)
  package let replies = TestGate()

  init() {}

  /// Whether the disk of the app's container, and of its runtime's state, has no room left: what
  /// takes more than was given back since is refused with `ENOSPC`. A container goes on from its
  /// reserve, as on a real disk: files can be removed, and not grow.
  public var hasFullDisk: Bool {
    get { freeByteCount.withLock { $0 != nil } }
    set { freeByteCount.withLock { $0 = newValue ? $0 ?? 0 : nil } }
  }

  /// Throws when there is no room for so many bytes more.
  fileprivate func take(_ byteCount: UInt64, for path: String) throws(IOFailure) {
    let isTaken = freeByteCount.withLock { free in
      guard let now = free else { return true }
      if now >= byteCount { free = now - byteCount }
      return now >= byteCount
    }
    if !isTaken { throw IOFailure("write", path, errno: ENOSPC) }
  }

  fileprivate func giveBack(_ byteCount: UInt64) {
    freeByteCount.withLock { free in
      if let now = free { free = now + byteCount }
    }
  }

  fileprivate var room: UInt64? { freeByteCount.withLock { $0 } }

  /// Whether replies of the app, errors too, wait until this is false again.
  public var holdsReplies: Bool {
    get { replies.isShut }
    set { newValue ? replies.shut() : replies.open() }
  }

  var containerOptions: Container.Options {
    var options = Container.Options()
    options.passwordHash = .cheapest
    options.disk = { path in FaultyDisk(PosixBlockIO(path), self) }
    return options
  }
}

/// A directory of the native file system, on a disk that may be full.
private final class FaultyDisk: BlockIO {
  private let disk: any BlockIO
  private let faults: TestFaults

  init(_ disk: any BlockIO, _ faults: TestFaults) { (self.disk, self.faults) = (disk, faults) }

  /// What a file takes.
  private func byteCount(_ path: String) -> UInt64 {
    (try? disk.openIfReadable(path, .read)?.size()) ?? 0
  }

  var place: String { disk.place }
  var isThere: Bool { disk.isThere }
  var directory: OpenDirectory? { disk.directory }

  func requireDirectory(_ path: String) throws(IOFailure) { try disk.requireDirectory(path) }

  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    FaultyFile(try disk.open(path, access), path, faults)
  }

  func identity(of path: String) throws(IOFailure) -> FileIdentity? { try disk.identity(of: path) }
  func fileNames(in directory: String) throws(IOFailure) -> [String] { try disk.fileNames(in: directory) }

  func createDirectory(_ path: String) throws(IOFailure) {
    try faults.take(4096, for: path)
    try disk.createDirectory(path)
  }

  func removeDirectory(_ path: String) throws(IOFailure) { try disk.removeDirectory(path) }

  func remove(_ path: String) throws(IOFailure) {
    let freed = faults.hasFullDisk ? byteCount(path) : 0
    try disk.remove(path)
    faults.giveBack(freed)
  }

  func rename(_ path: String, to newPath: String) throws(IOFailure) {
    let freed = faults.hasFullDisk ? byteCount(newPath) : 0
    try disk.rename(path, to: newPath)
    faults.giveBack(freed)
  }

  func synchronizeDirectory(_ path: String) throws(IOFailure) { try disk.synchronizeDirectory(path) }

  func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) {
    let space = try disk.space()
    return faults.room.map { (space.byteCount, $0) } ?? space
  }
}

/// A file there. What is in it can be replaced.
private final class FaultyFile: BlockFile {
  private let file: any BlockFile
  private let path: String
  private let faults: TestFaults

  init(_ file: any BlockFile, _ path: String, _ faults: TestFaults) {
    (self.file, self.path, self.faults) = (file, path, faults)
  }

  private func takeRoom(upTo end: UInt64) throws(IOFailure) {
    guard faults.hasFullDisk else { return }
    let size = try file.size()
    if end > size { try faults.take(end - size, for: path) }
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
    try takeRoom(upTo: offset + UInt64(bytes.count))
    try file.write(bytes, at: offset)
  }

  func allocate(_ count: UInt64) throws(IOFailure) {
    try takeRoom(upTo: count)
    try file.allocate(count)
  }

  func preallocate(_ count: UInt64, leaving free: UInt64) {
    if !faults.hasFullDisk { file.preallocate(count, leaving: free) }
  }

  func truncate(to size: UInt64) throws(IOFailure) {
    let before = try file.size()
    try file.truncate(to: size)
    if size < before { faults.giveBack(before - size) }
  }

  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
    try file.punchHole(offset: offset, count: count)
    faults.giveBack(count)
  }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
    try file.read(into: buffer, at: offset)
  }
  func size() throws(IOFailure) -> UInt64 { try file.size() }
  func identity() throws(IOFailure) -> FileIdentity { try file.identity() }
  func nextData(from offset: UInt64) throws(IOFailure) -> UInt64? { try file.nextData(from: offset) }
  func synchronize() throws(IOFailure) { try file.synchronize() }
  func startWriteback(offset: UInt64, count: Int) { file.startWriteback(offset: offset, count: count) }
  func allocatedByteCount() throws(IOFailure) -> UInt64 { try file.allocatedByteCount() }
  func dropCache() { file.dropCache() }
  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
    try file.tryLock(range, exclusive: exclusive)
  }
  func unlock(_ range: LockRange) { file.unlock(range) }
  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool { try file.isLocked(range) }
  var lacksLocks: Bool { file.lacksLocks }
}
