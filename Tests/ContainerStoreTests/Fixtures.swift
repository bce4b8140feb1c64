import ContainerStore
import Dispatch
import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import Testing

/// A container on a disk in memory.
struct Fixture {
  let io: RecordingIO
  let container: Container

  init(
    _ io: RecordingIO = RecordingIO(), key: UInt8 = 7, durability: Container.Durability = .full
  ) throws {
    self.io = io
    container = try Container.create(
      io: io, credential: testCredential(key), options: testOptions(durability))
  }

  /// Closes the container and opens it again.
  func reopened(
    key: UInt8 = 7, mode: Container.Mode = .readWrite, durability: Container.Durability = .full
  ) throws -> Container {
    try container.close()
    return try Container.open(
      io: io, credential: testCredential(key), mode: mode, options: testOptions(durability))
  }
}

extension RecordingIO {
  /// Bytes of each slab that is there, dead ones included.
  var slabSizes: [String: Int] {
    let image = image
    return image.names.filter { $0.key.hasPrefix("slab/") }.mapValues { image.contents[$0]!.count }
  }

  /// The same disk with one bit of one byte flipped, `distance` bytes before the end of the slab.
  func damaged(slab: String = "slab/00000000", fromEnd distance: Int = 1) -> RecordingIO {
    var image = image
    let inode = image.names[slab]!
    image.contents[inode]![image.contents[inode]!.count - distance] ^= 1
    return RecordingIO(image)
  }
}

extension RecordingIO.Operation {
  /// A write to, or the creation of, a slab: what takes space while contents are staged.
  var takesSlabSpace: Bool {
    switch self {
    case .write(let path, _, _), .create(let path): path.hasPrefix("slab/")
    default: false
    }
  }
}

/// Expects an error of the code, with the path, and with a detail that gives no name away.
func expectError<R>(
  _ code: ContainerError.Code, path: String? = nil, of call: String? = nil,
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> R
) {
  do {
    _ = try body()
    Issue.record("\(call ?? "it") throws nothing and not \(code)", sourceLocation: sourceLocation)
  } catch let error as ContainerError {
    #expect(error.code == code, "\(call ?? "it") throws \(error)", sourceLocation: sourceLocation)
    guard let path else { return }
    #expect(error.path.map { Array($0.utf8) } == Array(path.utf8), sourceLocation: sourceLocation)
    for name in path.split(separator: "/") where name.utf8.count >= 4 {
      #expect(error.detail?.contains(name) != true, sourceLocation: sourceLocation)
    }
  } catch {
    Issue.record(error, sourceLocation: sourceLocation)
  }
}

/// Runs the body so many times at once, on threads that may block, and returns what it complained of.
func inThreads(_ count: Int, _ body: @escaping @Sendable (Int) throws -> String?) -> [String] {
  let complaints = Guarded<[String]>([])
  let group = DispatchGroup()
  for i in 0..<count {
    group.enter()
    // Not a concurrent queue: it has hardly more threads than there are processors, and the rest would wait for the first.
    Thread.detachNewThread {
      defer { group.leave() }
      do {
        if let complaint = try body(i) { complaints.withLock { $0.append(complaint) } }
      } catch {
        complaints.withLock { $0.append("\(i): \(error)") }
      }
    }
  }
  group.wait()
  return complaints.withLock { $0 }
}

/// Sizes at the borders of a segment and of a unit, and in between.
let borderSizes = [0, 1, 16383, 16384, 16385, 1 << 20 - 1, 1 << 20, 1 << 20 + 1, 5 << 20 + 123]

/// A disk that calls back before an operation, with no lock held: whatever another thread could do at that moment can be done there.
final class HookedIO: BlockIO {
  typealias Hook = @Sendable (_ operation: String, _ path: String) -> Void

  let disk = RecordingIO()
  /// The disk, or another one.
  private let io: any BlockIO
  private let hook = Guarded<Hook?>(nil)
  private let badSectors = Guarded<[(path: String, offset: UInt64)]>([])

  /// Whether a file has another number each time, as in some FUSE file systems.
  fileprivate let hasChangingNumbers: Bool

  init(_ other: (any BlockIO)? = nil, hasChangingNumbers: Bool = false) {
    io = other ?? disk
    self.hasChangingNumbers = hasChangingNumbers
  }

  fileprivate func number(_ identity: FileIdentity) -> FileIdentity {
    hasChangingNumbers ? FileIdentity(device: identity.device, inode: .random(in: 0 ... .max)) : identity
  }

  var place: String { io.place }

  func setHook(_ hook: Hook?) { self.hook.withLock { $0 = hook } }

  /// From now on the system does not read this byte.
  func refuseReads(of path: String, at offset: UInt64) { badSectors.withLock { $0.append((path, offset)) } }

  fileprivate func requireReadable(_ path: String, _ range: Range<UInt64>) throws(IOFailure) {
    let isBad = badSectors.withLock { $0.contains { $0.path == path && range.contains($0.offset) } }
    if isBad { throw IOFailure("read", path, errno: EIO) }
  }

  fileprivate func call(_ operation: String, _ path: String) { hook.withLock { $0 }?(operation, path) }

  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    call("open", path)
    return HookedFile(file: try io.open(path, access), path: path, io: self)
  }
  func identity(of path: String) throws(IOFailure) -> FileIdentity? {
    call("stat", path)
    return try io.identity(of: path).map(number)
  }
  func fileNames(in directory: String) throws(IOFailure) -> [String] { try io.fileNames(in: directory) }
  func createDirectory(_ path: String) throws(IOFailure) { try io.createDirectory(path) }
  func removeDirectory(_ path: String) throws(IOFailure) { try io.removeDirectory(path) }
  func remove(_ path: String) throws(IOFailure) {
    call("remove", path)
    try io.remove(path)
  }
  func rename(_ path: String, to newPath: String) throws(IOFailure) { try io.rename(path, to: newPath) }
  func synchronizeDirectory(_ path: String) throws(IOFailure) { try io.synchronizeDirectory(path) }
  func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) { try io.space() }
}

private final class HookedFile: BlockFile {
  let file: any BlockFile
  let path: String
  let io: HookedIO

  init(file: any BlockFile, path: String, io: HookedIO) {
    self.file = file
    self.path = path
    self.io = io
  }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
    try io.requireReadable(path, offset..<offset + UInt64(buffer.count))
    return try file.read(into: buffer, at: offset)
  }
  func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
    io.call("write", path)
    try file.write(bytes, at: offset)
  }
  func size() throws(IOFailure) -> UInt64 {
    io.call("size", path)
    return try file.size()
  }
  func identity() throws(IOFailure) -> FileIdentity { io.number(try file.identity()) }
  func truncate(to size: UInt64) throws(IOFailure) {
    io.call("truncate", path)
    try file.truncate(to: size)
  }
  func synchronize() throws(IOFailure) {
    io.call("synchronize", path)
    try file.synchronize()
  }
  func startWriteback(offset: UInt64, count: Int) {}
  func preallocate(_ count: UInt64, leaving free: UInt64) {}
  func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
    io.call("punch", path)
    try file.punchHole(offset: offset, count: count)
  }
  func dropCache() {}
  func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
    io.call("lock", path)
    return try file.tryLock(range, exclusive: exclusive)
  }
  func unlock(_ range: LockRange) { file.unlock(range) }
  func isLocked(_ range: LockRange) throws(IOFailure) -> Bool {
    io.call("query", path)
    return try file.isLocked(range)
  }
}
