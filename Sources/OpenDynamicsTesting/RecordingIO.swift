package import ContainerStore
import Locks

/// A container's disk in memory that keeps a log of every operation, so that a crash after any of them can be replayed in every way
/// that a real disk may have suffered it.
package final class RecordingIO: BlockIO {
  package indirect enum Operation: Sendable, Equatable {
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
    /// It was tried and reported an error. A write may have reached the disk in part, which then stands before it; a sync that
    /// failed leaves what it was for unwritten for ever, as it does on Linux.
    case failed(Operation)
  }

  /// Says whether an operation fails, and with which error number. Called with its number in the log.
  package typealias Fault = @Sendable (Operation, Int) -> Int32?

  /// Says whether a call fails, be it one that only reads. Called with its name ("open", "open for reading", "read", "write", …), the path,
  /// and how many calls there were before it.
  package typealias CallFault = @Sendable (_ name: String, _ path: String, _ number: Int) -> Int32?

  private let state: Guarded<State>
  /// Its number as a device: no other disk of the process has it.
  private let device = UInt64.random(in: 0 ... .max)

  private struct State {
    let start: DiskImage
    var disk: DiskImage
    var log: [Operation] = []
    var fault: Fault?
    var syncObserver: (@Sendable (String) -> Void)?
    var callFault: CallFault?
    var callCount = 0
    var preallocatedPaths: [String] = []
    var locks: [(owner: ObjectIdentifier, path: String, range: LockRange, exclusive: Bool)] = []
    /// How many handles there are of each file: as long as there is one, its contents stay.
    var handleCounts: [Int: Int] = [:]
    /// Files one of whose syncs failed.
    var unwritten: Set<Int> = []

    init(_ image: DiskImage) {
      start = image
      disk = image
    }

    mutating func call(_ name: String, _ path: String, as operation: String? = nil) throws(IOFailure) {
      defer { callCount += 1 }
      if let code = callFault?(name, path, callCount) {
        throw IOFailure(operation ?? name, path, errno: code)
      }
    }

    mutating func perform(_ operation: Operation, _ name: String, _ path: String) throws(IOFailure) {
      do throws(IOFailure) {
        try call(name, path)
        if let code = fault?(operation, log.count) { throw IOFailure(name, path, errno: code) }
      } catch {
        fail(operation)
        throw error
      }
      let replaced: Int? =
        switch operation {
        case .remove(let path), .rename(_, let path): disk.names[path]
        default: nil
        }
      let kept = replaced.flatMap { handleCounts[$0] == nil ? nil : disk.contents[$0] }
      if let code = disk.apply(operation) { throw IOFailure(name, path, errno: code) }
      if let replaced, let kept { disk.contents[replaced] = kept }
      log.append(operation)
    }

    private mutating func fail(_ operation: Operation) {
      switch operation {
      case .write(let path, let offset, let bytes) where bytes.count > 1:
        let part = Operation.write(path, offset: offset, bytes: Array(bytes.prefix(bytes.count / 2)))
        if disk.apply(part) == nil { log.append(part) }
      case .synchronize(let path): if let inode = disk.names[path] { unwritten.insert(inode) }
      default: break
      }
      log.append(.failed(operation))
    }

    /// Where an open file is now; nil when its name was removed.
    func path(of file: RecordedFile) -> String? {
      if disk.names[file.path] == file.inode { return file.path }
      return disk.names.first { $0.value == file.inode }?.key
    }
  }

  package init(_ image: DiskImage = DiskImage()) { state = Guarded(State(image)) }

  package var place: String { "memory" }
  package var log: [Operation] { state.withLock { $0.log } }
  package var callCount: Int { state.withLock { $0.callCount } }
  /// Files that were given their blocks ahead, in order; their lengths are as if they were not.
  package var preallocatedPaths: [String] { state.withLock { $0.preallocatedPaths } }
  /// What another process would see now.
  package var image: DiskImage {
    state.withLock { state in
      DiskImage(
        directories: state.disk.directories, names: state.disk.names, contents: state.disk.contents,
        nextInode: state.disk.nextInode)
    }
  }

  /// Every later operation passes through `fault` first.
  package func setFault(_ fault: Fault?) { state.withLock { $0.fault = fault } }

  /// Every later call passes through `fault` first, and they are counted from 0.
  package func setCallFault(_ fault: CallFault?) {
    state.withLock { state in
      state.callFault = fault
      state.callCount = 0
    }
  }

  /// The next opening finds no file at `path`: another process makes it right behind.
  package func hideOnce(_ path: String) {
    let isHidden = Guarded(true)
    setCallFault { name, opened, _ in
      guard opened == path, name.hasPrefix("open") else { return nil }
      return isHidden.withLock { isHidden in
        defer { isHidden = false }
        return isHidden ? missingFile : nil
      }
    }
  }

  /// Calls `body` with the path before every later sync of a file. It may block that sync; other calls go on.
  package func setSyncObserver(_ body: (@Sendable (String) -> Void)?) {
    state.withLock { $0.syncObserver = body }
  }

  private func perform(_ operation: Operation, _ name: String, _ path: String) throws(IOFailure) {
    try state.withLock { state throws(IOFailure) in try state.perform(operation, name, path) }
  }

  package func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    try state.withLock { state throws(IOFailure) in
      if access == .createNew {
        try state.perform(.create(path), "open", path)
      } else {
        try state.call(access == .read ? "open for reading" : "open", path, as: "open")
      }
      guard let inode = state.disk.names[path] else { throw IOFailure("open", path, errno: missingFile) }
      state.handleCounts[inode, default: 0] += 1
      return RecordedFile(io: self, path: path, inode: inode)
    }
  }

  package func identity(of path: String) throws(IOFailure) -> FileIdentity? {
    try state.withLock { state throws(IOFailure) in
      try state.call("stat", path)
      return state.disk.names[path].map { FileIdentity(device: device, inode: UInt64($0)) }
    }
  }

  package func fileNames(in directory: String) throws(IOFailure) -> [String] {
    let prefix = directory.isEmpty ? "" : directory + "/"
    return try state.withLock { state throws(IOFailure) in
      try state.call("opendir", directory)
      return state.disk.names.keys.filter {
        $0.hasPrefix(prefix) && !$0.dropFirst(prefix.count).contains("/")
      }
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
  /// All of 1 TiB is free, whatever was written.
  package func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) {
    try state.withLock { state throws(IOFailure) in try state.call("statvfs", place) }
    return (1 << 40, 1 << 40)
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
      io.state.withLock { state in
        state.locks.removeAll { $0.owner == ObjectIdentifier(self) }
        state.handleCounts[inode]! -= 1
        guard state.handleCounts[inode] == 0 else { return }
        state.handleCounts[inode] = nil
        if state.path(of: self) == nil { state.disk.contents[inode] = nil }
      }
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws(IOFailure) -> Int {
      try io.state.withLock { state throws(IOFailure) in
        try state.call("read", path)
        let contents = state.disk.contents[inode] ?? []
        guard offset < UInt64(contents.count) else { return 0 }
        let count = min(buffer.count, contents.count - Int(offset))
        buffer.copyBytes(from: contents[Int(offset)..<(Int(offset) + count)])
        return count
      }
    }

    private func perform(_ name: String, _ operation: (String) -> Operation) throws(IOFailure) {
      try io.state.withLock { state throws(IOFailure) in
        // What is done to a file whose name was removed goes nowhere.
        guard let path = state.path(of: self) else { return try state.call(name, path) }
        try state.perform(operation(path), name, path)
      }
    }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(IOFailure) {
      try perform("write") { .write($0, offset: offset, bytes: [UInt8](bytes)) }
    }
    func size() throws(IOFailure) -> UInt64 {
      try io.state.withLock { state throws(IOFailure) in
        try state.call("fstat", path)
        return UInt64(state.disk.contents[inode]?.count ?? 0)
      }
    }
    func identity() throws(IOFailure) -> FileIdentity {
      try io.state.withLock { state throws(IOFailure) in
        try state.call("fstat", path)
        return FileIdentity(device: io.device, inode: UInt64(inode))
      }
    }
    func truncate(to size: UInt64) throws(IOFailure) {
      try perform("ftruncate") { .truncate($0, size: size) }
    }
    func synchronize() throws(IOFailure) {
      io.state.withLock { $0.syncObserver }?(path)
      try perform("fdatasync") { .synchronize($0) }
    }
    func startWriteback(offset: UInt64, count: Int) {}
    func preallocate(_ count: UInt64, leaving free: UInt64) {
      io.state.withLock { $0.preallocatedPaths.append(path) }
    }
    func punchHole(offset: UInt64, count: UInt64) throws(IOFailure) {
      try perform("fallocate") { .punch($0, offset: offset, count: count) }
    }
    /// After a sync that failed, memory shows what the disk does not have.
    func dropCache() {
      io.state.withLock { state in
        guard state.unwritten.remove(inode) != nil, let path = state.path(of: self) else { return }
        let plan = CrashPlan(operationCount: state.log.count, loss: .everythingUnsynchronized)
        state.disk.contents[inode] = plan.contents(of: path, after: state.log, from: state.start)
      }
    }

    func tryLock(_ range: LockRange, exclusive: Bool) throws(IOFailure) -> Bool {
      try io.state.withLock { state throws(IOFailure) in
        try state.call("lock", path)
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
      try io.state.withLock { state throws(IOFailure) in
        try state.call("lock", path)
        return conflicts(range, exclusive: true, in: state)
      }
    }
    private func conflicts(_ range: LockRange, exclusive: Bool, in state: State) -> Bool {
      state.locks.contains {
        $0.owner != ObjectIdentifier(self) && $0.path == path && (exclusive || $0.exclusive)
          && $0.range.offset < range.offset + range.count && range.offset < $0.range.offset + $0.range.count
      }
    }
  }
}
