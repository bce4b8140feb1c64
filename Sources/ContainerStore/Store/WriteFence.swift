import Dispatch
import Locks

/// Counts the changes of one opening to its files that are under way, and lets none begin once it is shut.
///
/// So a change that was held up, for instance in a sync, does not reach the files when they are another opening's, or destroyed.
final class WriteFence: Sendable {
  private let isShut = Guarded(false)
  private let changes = DispatchGroup()

  /// Makes a change. Behind a shut fence throws a failure of no file.
  func change<R>(_ path: String, _ body: () throws(IOFailure) -> R) throws(IOFailure) -> R {
    let mayBegin = isShut.withLock { isShut in
      if !isShut { changes.enter() }
      return !isShut
    }
    guard mayBegin else { throw .closed(path) }
    defer { changes.leave() }
    return try body()
  }

  /// No change begins from now on.
  func shut() { isShut.withLock { $0 = true } }

  /// Returns when the changes that had begun before ``shut()`` have ended.
  func wait() { changes.wait() }
}

/// The files of a container behind a fence.
final class FencedIO: BlockIO {
  /// The files without the fence, for another opening.
  var unfenced: any BlockIO { io }
  private let io: any BlockIO
  private let fence: WriteFence

  init(_ io: any BlockIO, _ fence: WriteFence) { (self.io, self.fence) = (io, fence) }

  var place: String { io.place }
  var isThere: Bool { io.isThere }
  var directory: OpenDirectory? { io.directory }

  func requireDirectory(_ path: String) throws(IOFailure) { try io.requireDirectory(path) }
  func identity(of path: String) throws(IOFailure) -> FileIdentity? { try io.identity(of: path) }
  func fileNames(in directory: String) throws(IOFailure) -> [String] { try io.fileNames(in: directory) }
  func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) { try io.space() }

  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    guard access == .createNew else { return FencedFile(try io.open(path, access), path, fence) }
    return try fence.change(path) { () throws(IOFailure) in FencedFile(try io.open(path, access), path, fence)
    }
  }

  func createDirectory(_ path: String) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try io.createDirectory(path) }
  }
  func removeDirectory(_ path: String) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try io.removeDirectory(path) }
  }
  func remove(_ path: String) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try io.remove(path) }
  }
  func rename(_ path: String, to newPath: String) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try io.rename(path, to: newPath) }
  }
  func synchronizeDirectory(_ path: String) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try io.synchronizeDirectory(path) }
  }
}

/// A file behind a fence.
private final class FencedFile: BlockFile {
  private let file: any BlockFile
  private let path: String
  private let fence: WriteFence

  init(_ file: any BlockFile, _ path: String, _ fence: WriteFence) {
    (self.file, self.path, self.fence) = (file, path, fence)
  }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
    try file.read(into: buffer, at: offset)
  }
  func size() throws(IOFailure) -> UInt64 { try file.size() }
  func identity() throws(IOFailure) -> FileIdentity { try file.identity() }
  func nextData(from offset: UInt64) throws(IOFailure) -> UInt64? { try file.nextData(from: offset) }
  func allocatedByteCount() throws(IOFailure) -> UInt64 { try file.allocatedByteCount() }
  func dropCache() { file.dropCache() }
  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
    try file.tryLock(range, exclusive: exclusive)
  }
  func unlock(_ range: LockRange) { file.unlock(range) }
  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool { try file.isLocked(range) }
  var lacksLocks: Bool { file.lacksLocks }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try file.write(bytes, at: offset) }
  }
  func truncate(to size: UInt64) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try file.truncate(to: size) }
  }
  func synchronize() throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try file.synchronize() }
  }
  func allocate(_ count: UInt64) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try file.allocate(count) }
  }
  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
    try fence.change(path) { () throws(IOFailure) in try file.punchHole(offset: offset, count: count) }
  }
  func startWriteback(offset: UInt64, count: Int) {
    try? fence.change(path) { file.startWriteback(offset: offset, count: count) }
  }
  func preallocate(_ count: UInt64, leaving free: UInt64) {
    try? fence.change(path) { file.preallocate(count, leaving: free) }
  }
}
