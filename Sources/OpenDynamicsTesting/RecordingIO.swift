package import ContainerStore

/// A container's disk in memory that keeps a log of every operation, so that a crash after any of them can be replayed in every way
/// that a real disk may have suffered it.
package final class RecordingIO: BlockIO {
  package enum Operation: Sendable, Equatable {
    case create(String)
    case write(String, offset: UInt64, bytes: [UInt8])
    case truncate(String, size: UInt64)
    case punch(String, offset: UInt64, count: UInt64)
    case synchronize(String)
    case remove(String)
    case rename(String, to: String)
    case createDirectory(String)
    case removeDirectory(String)
    case synchronizeDirectory(String)
  }

  /// Says whether an operation fails, and with which error number. Called with its number in the log.
  package typealias Fault = @Sendable (Operation, Int) -> Int32?

  private let state: Guarded<State>

  struct State {
    var disk: DiskImage
    var log: [Operation] = []
    var fault: Fault?
    var locks: [(owner: ObjectIdentifier, path: String, range: LockRange, exclusive: Bool)] = []
  }

  package init(_ image: DiskImage = DiskImage()) { state = Guarded(State(disk: image)) }

  package var place: String { "memory" }
  package var log: [Operation] { state.withLock { $0.log } }
  package var image: DiskImage { state.withLock { $0.disk } }

  /// Every later operation passes through `fault` first.
  package func setFault(_ fault: Fault?) { state.withLock { $0.fault = fault } }

  private func perform(_ operation: Operation, _ name: String, _ path: String) throws(IOFailure) {
    try state.withLock { state throws(IOFailure) in
      if let code = state.fault?(operation, state.log.count) {
        state.log.append(.synchronizeDirectory("failed"))  // keeps numbers unique; changes nothing
        throw IOFailure(name, path, errno: code)
      }
      if let code = state.disk.apply(operation) { throw IOFailure(name, path, errno: code) }
      state.log.append(operation)
    }
  }

  package func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    if access == .createNew {
      try perform(.create(path), "open", path)
    } else if !state.withLock({ $0.disk.exists(path) }) {
      throw IOFailure("open", path, errno: missingFile)
    }
    guard let inode = state.withLock({ $0.disk.names[path] }) else {
      throw IOFailure("open", path, errno: missingFile)
    }
    return RecordedFile(io: self, path: path, inode: inode)
  }

  package func fileNames(in directory: String) throws(IOFailure) -> [String] {
    let prefix = directory.isEmpty ? "" : directory + "/"
    return state.withLock { state in
      state.disk.names.keys.filter { $0.hasPrefix(prefix) && !$0.dropFirst(prefix.count).contains("/") }
        .map { String($0.dropFirst(prefix.count)) }.sorted()
    }
  }

  package func createDirectory(_ path: String) throws(IOFailure) {
    try perform(.createDirectory(path), "mkdir", path)
  }
  package func removeDirectory(_ path: String) throws(IOFailure) {
    try perform(.removeDirectory(path), "rmdir", path)
  }
  package func remove(_ path: String) throws(IOFailure) { try perform(.remove(path), "unlink", path) }
  package func rename(_ path: String, to newPath: String) throws(IOFailure) {
    try perform(.rename(path, to: newPath), "rename", path)
  }
  package func synchronizeDirectory(_ path: String) throws(IOFailure) {
    try perform(.synchronizeDirectory(path), "fsync", path)
  }

  private final class RecordedFile: BlockFile {
    let io: RecordingIO
    let path: String
    let inode: Int

    init(io: RecordingIO, path: String, inode: Int) {
      self.io = io
      self.path = path
      self.inode = inode
    }

    deinit {
      io.state.withLock { state in state.locks.removeAll { $0.owner == ObjectIdentifier(self) } }
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
      io.state.withLock { state in
        let contents = state.disk.contents[inode] ?? []
        guard offset < UInt64(contents.count) else { return 0 }
        let count = min(buffer.count, contents.count - Int(offset))
        buffer.copyBytes(from: contents[Int(offset)..<(Int(offset) + count)])
        return count
      }
    }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
      try io.perform(.write(path, offset: offset, bytes: [UInt8](bytes)), "write", path)
    }
    func size() throws(IOFailure) -> UInt64 {
      io.state.withLock { UInt64($0.disk.contents[inode]?.count ?? 0) }
    }
    func truncate(to size: UInt64) throws(IOFailure) {
      try io.perform(.truncate(path, size: size), "ftruncate", path)
    }
    func synchronize() throws(IOFailure) { try io.perform(.synchronize(path), "fdatasync", path) }
    func startWriteback(offset: UInt64, count: Int) {}
    func preallocate(_ count: UInt64) {}
    func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
      try io.perform(.punch(path, offset: offset, count: count), "fallocate", path)
    }
    func dropCache() {}

    func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
      io.state.withLock { state in
        guard !conflicts(range, exclusive: exclusive, in: state) else { return false }
        state.locks.append((ObjectIdentifier(self), path, range, exclusive))
        return true
      }
    }
    func unlock(_ range: LockRange) {
      io.state.withLock { state in
        state.locks.removeAll {
          $0.owner == ObjectIdentifier(self) && (range.count == 0 || $0.range == range)
        }
      }
    }
    func isLocked(_ range: LockRange) throws(IOFailure) -> Bool {
      io.state.withLock { conflicts(range, exclusive: true, in: $0) }
    }
    private func conflicts(_ range: LockRange, exclusive: Bool, in state: State) -> Bool {
      state.locks.contains {
        $0.owner != ObjectIdentifier(self) && $0.path == path && (exclusive || $0.exclusive)
          && $0.range.offset < range.offset + range.count && range.offset < $0.range.offset + $0.range.count
      }
    }
  }
}
