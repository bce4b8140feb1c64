import CPosix
import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file, directory or symbolic link of the native file system that is to be imported. There may be millions: it has no path of its
/// own, and no array that could be empty.
struct NativeItem: Sendable {
  /// Index of the directory that it is in; of the top, 0.
  let parent: UInt32
  /// Nil for the top.
  let name: FileName?
  let kind: FileKind
  let permissions: UInt16
  let size: UInt64
  let modified: Int64
  /// Which file it is.
  private let device: UInt64
  private let number: UInt64
  /// Where a symbolic link leads.
  fileprivate(set) var target: [UInt8]?

  fileprivate init(parent: Int, name: FileName?, status: stat) {
    self.parent = UInt32(parent)
    self.name = name
    kind =
      switch status.st_mode & S_IFMT {
      case S_IFDIR: .directory
      case S_IFLNK: .symbolicLink
      default: .file
      }
    size = UInt64(status.st_size)
    permissions = UInt16(status.st_mode & 0o7777)
    modified = NativeTime.modified(status)
    device = UInt64(status.st_dev)
    number = UInt64(status.st_ino)
  }

  /// Whether this is the same file in the same state.
  fileprivate func isUnchanged(_ status: stat) -> Bool {
    size == UInt64(status.st_size) && modified == NativeTime.modified(status)
      && device == UInt64(status.st_dev) && number == UInt64(status.st_ino)
  }
}

extension NativeTime {
  fileprivate static func modified(_ status: stat) -> Int64 {
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    return nanoseconds(seconds: time.tv_sec, nanoseconds: time.tv_nsec)
  }
}

/// An item of the native file system and everything below it, parents first.
struct NativeTree: Sendable {
  let root: String
  private(set) var items: [NativeItem] = []

  var top: NativeItem { items[0] }

  /// A link at the path itself is followed. Throws `noSuchFile`, and `cannotStore` for pipes and devices, and for names and targets
  /// of links that are not UTF-8.
  init(_ root: String) throws {
    self.root = root
    var status = stat()
    guard stat(root, &status) == 0 else { throw Self.failure("stat", root) }
    try Self.checkKind(status, root)
    items.append(NativeItem(parent: 0, name: nil, status: status))
    var next = 0
    while next < items.count {
      defer { next += 1 }
      guard items[next].kind == .directory else { continue }
      let directory = path(of: next)
      for name in try Self.fileNames(in: directory).sorted() {
        let path = directory + "/" + name.description
        guard lstat(path, &status) == 0 else { throw Self.failure("lstat", path) }
        try Self.checkKind(status, path)
        var item = NativeItem(parent: next, name: name, status: status)
        if item.kind == .symbolicLink { item.target = try Self.target(of: path) }
        items.append(item)
      }
    }
  }

  /// Below the top; empty for the top itself.
  func names(of index: Int) -> [FileName] {
    var names: [FileName] = []
    var index = index
    while let name = items[index].name {
      names.append(name)
      index = Int(items[index].parent)
    }
    return names.reversed()
  }

  private func path(of index: Int) -> String {
    ([root] + names(of: index).map(\.description)).joined(separator: "/")
  }

  private static func checkKind(_ status: stat, _ path: String) throws {
    switch status.st_mode & S_IFMT {
    case S_IFREG, S_IFDIR, S_IFLNK: break
    default: throw ContainerError(.cannotStore, nativePath: path, detail: "neither a file nor a directory")
    }
  }

  private static func target(of path: String) throws -> [UInt8] {
    var target = [UInt8](repeating: 0, count: Inode.targetByteCountMax + 1)
    let count = target.withUnsafeMutableBytes {
      readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
    }
    guard count >= 0 else { throw failure("readlink", path) }
    target.removeLast(target.count - count)
    guard (1...Inode.targetByteCountMax).contains(count), String(validating: target, as: UTF8.self) != nil
    else {
      throw ContainerError(
        .cannotStore, nativePath: path,
        detail: "a symbolic link whose target has not 1 to \(Inode.targetByteCountMax) bytes of UTF-8")
    }
    return target
  }

  private static func fileNames(in directory: String) throws -> [FileName] {
    guard let stream = opendir(directory) else { throw failure("opendir", directory) }
    defer { closedir(stream) }
    var names: [FileName] = []
    while true {
      errno = 0  // only by this does readdir(3) tell a failure from the end
      guard let entry = readdir(stream) else {
        let code = errno
        if code != 0 { throw failure("readdir", directory, code) }
        return names
      }
      let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard let name = FileName(bytes: bytes) else { continue }  // . and ..
      guard String(validating: bytes, as: UTF8.self) != nil else {
        throw ContainerError(
          .cannotStore, nativePath: directory + "/" + name.description, detail: "its name is not UTF-8")
      }
      names.append(name)
    }
  }

  /// Fills the buffer from byte `offset` of a file on. Throws `sourceChanged` when the file is not as it was when it was listed.
  func read(_ index: Int, into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws {
    let path = path(of: index)
    // What became a pipe meanwhile is not waited for.
    let descriptor = cposix_open(path, O_RDONLY | O_NONBLOCK | (index == 0 ? 0 : O_NOFOLLOW), 0)
    guard descriptor >= 0 else { throw Self.failure("open", path, -descriptor) }
    defer { close(descriptor) }
    let count = try Self.naming(path) { () throws(IOFailure) in
      try readFully(descriptor, into: buffer, at: offset, name: Self.anyFile)
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw Self.failure("fstat", path) }
    guard count == buffer.count, items[index].isUnchanged(status) else {
      throw ContainerError(.sourceChanged, nativePath: path)
    }
  }

  /// Stands for the path in descriptions: below an exported folder, it holds names from inside the container.
  static let anyFile = "the native file"

  static func failure(_ operation: String, _ path: String, _ code: Int32 = errno) -> ContainerError {
    failure(IOFailure(operation, anyFile, errno: code), path)
  }

  private static func failure(_ failure: IOFailure, _ path: String) -> ContainerError {
    switch failure.errno {
    case ENOENT: return ContainerError(.noSuchFile, nativePath: path)
    case ENOTDIR: return ContainerError(.notADirectory, nativePath: path)
    default:
      let error = ContainerError.from(failure)
      return ContainerError(error.code, nativePath: path, detail: error.detail, cause: failure)
    }
  }

  /// Gives a failed system call in `body` the path: it would be taken for one in the container.
  fileprivate static func naming<R>(_ path: String, _ body: () throws(IOFailure) -> R) throws -> R {
    do throws(IOFailure) { return try body() } catch { throw failure(error, path) }
  }
}

/// What a native file or directory gets of the permissions that are stored with it, before the umask: it is not writable for
/// everybody, whoever sent it, and has no set-id and sticky bits.
package enum NativePermissions {
  package static let mask: UInt16 = 0o775
}

/// Files and directories that an export makes; all of them go again when it fails.
final class NativeOutput: Sendable {
  /// A file that has not got its name yet. Errors name what it is to be.
  struct Unfinished: Sendable {
    let temporary: String
    let path: String
    /// The file's permissions when it is finished. The umask is already taken away, unless the file is made whole.
    let permissions: mode_t
    /// Whether ``writeWhole(_:to:modified:)`` makes it, with all its contents.
    let isWhole: Bool
  }

  private struct State {
    var directories: [String] = []
    var temporaries: Set<String> = []
    var nameCount = 0
  }
  private let state = Guarded(State())
  /// This number tells its unfinished files from those of other exports.
  private let identifier = Identifier.random().hex

  /// Returns whether the directory is new; leaves one that is there. A link to one passes for it only if `followingLinks`: else
  /// what is in the container would be written wherever the link leads.
  func makeDirectory(_ path: String, permissions: UInt16, followingLinks: Bool) throws -> Bool {
    if mkdir(path, mode_t(permissions & NativePermissions.mask) | 0o700) == 0 {
      state.withLock { $0.directories.append(path) }
      return true
    }
    let code = errno
    var status = stat()
    if code == EEXIST, (followingLinks ? stat(path, &status) : lstat(path, &status)) == 0 {
      guard status.st_mode & S_IFMT == S_IFDIR else { throw ContainerError(.fileExists, nativePath: path) }
      return false
    }
    throw NativeTree.failure("mkdir", path, code)
  }

  /// That an exported file may take the place.
  static func check(_ path: String, replacing: Bool) throws {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      guard errno == ENOENT else { throw NativeTree.failure("lstat", path) }
      return
    }
    if status.st_mode & S_IFMT == S_IFLNK {
      var target = stat()
      if stat(path, &target) == 0 {
        status = target
      } else if errno != ENOENT {
        throw NativeTree.failure("stat", path)
      }
    }
    // A link that leads nowhere is replaced like a file.
    switch status.st_mode & S_IFMT {
    case S_IFDIR: throw ContainerError(.isADirectory, nativePath: path)
    case S_IFREG, S_IFLNK: break
    default:
      throw ContainerError(.fileExists, nativePath: path, detail: "it is neither a file nor a directory")
    }
    if !replacing { throw ContainerError(.fileExists, nativePath: path) }
  }

  /// An unfinished file beside its destination; the destination appears, or is replaced, when it is whole. One that is written
  /// `inOnePiece` is made only then: with one opening in place of three.
  func begin(_ path: String, size: UInt64, permissions: UInt16, inOnePiece: Bool) throws -> Unfinished {
    let temporary = temporaryPath(for: path)
    let permissions = mode_t(permissions & NativePermissions.mask)
    guard !inOnePiece else {
      return Unfinished(temporary: temporary, path: path, permissions: permissions, isWhole: true)
    }
    let status = try makeTemporary(temporary, for: path, size: size, permissions: permissions)
    return Unfinished(
      temporary: temporary, path: path, permissions: status.st_mode & permissions, isWhole: false)
  }

  /// Makes the file with its contents, permissions and date of modification: everything but its name.
  func writeWhole(_ bytes: UnsafeRawBufferPointer, to file: Unfinished, modified: Int64) throws {
    let descriptor = cposix_open(file.temporary, O_WRONLY | O_CREAT | O_EXCL, file.permissions)
    guard descriptor >= 0 else { throw NativeTree.failure("open", file.path, -descriptor) }
    defer { close(descriptor) }
    state.withLock { _ = $0.temporaries.insert(file.temporary) }
    try NativeTree.naming(file.path) { () throws(IOFailure) in
      try writeFully(descriptor, bytes, at: 0, name: NativeTree.anyFile)
    }
    try Self.setModified(modified, of: descriptor, file.path)
  }

  /// Returns the state of the new file with the permissions that the umask leaves it; until it is finished it has fewer.
  private func makeTemporary(
    _ temporary: String, for path: String, size: UInt64, permissions: mode_t
  ) throws -> stat {
    let descriptor = cposix_open(temporary, O_WRONLY | O_CREAT | O_EXCL, permissions)
    guard descriptor >= 0 else { throw NativeTree.failure("open", path, -descriptor) }
    // The system takes away what the umask says, and nobody can ask for the umask without changing it for all threads.
    var status = stat()
    guard fstat(descriptor, &status) == 0, fchmod(descriptor, 0o600) == 0 else {
      let code = errno
      close(descriptor)
      unlink(temporary)
      throw NativeTree.failure("fchmod", path, code)
    }
    // Threads write it in pieces: with its blocks given ahead they wait less for one another.
    if size >= 16 << 20 { _ = cposix_preallocate(descriptor, Int64(size)) }
    close(descriptor)
    state.withLock { _ = $0.temporaries.insert(temporary) }
    return status
  }

  /// A name beside `path` that nothing has.
  private func temporaryPath(for path: String) -> String {
    let directory = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { path[...$0] } ?? ""
    let number = state.withLock { state in
      state.nameCount += 1
      return state.nameCount
    }
    return directory + ".opendynamics-\(identifier)-\(number).part"
  }

  func write(_ bytes: UnsafeRawBufferPointer, to file: Unfinished, at offset: UInt64) throws {
    let descriptor = cposix_open(file.temporary, O_WRONLY | O_NOFOLLOW, 0)
    guard descriptor >= 0 else { throw NativeTree.failure("open", file.path, -descriptor) }
    defer { close(descriptor) }
    try NativeTree.naming(file.path) { () throws(IOFailure) in
      try writeFully(descriptor, bytes, at: offset, name: NativeTree.anyFile)
    }
  }

  /// Gives the file its length, permissions and date of modification, and its name.
  func finish(_ file: Unfinished, size: UInt64, modified: Int64) throws {
    if !file.isWhole { try complete(file, size: size, modified: modified) }
    guard rename(file.temporary, file.path) == 0 else { throw NativeTree.failure("rename", file.path) }
    state.withLock { _ = $0.temporaries.remove(file.temporary) }
  }

  private func complete(_ file: Unfinished, size: UInt64, modified: Int64) throws {
    let descriptor = cposix_open(file.temporary, O_WRONLY | O_NOFOLLOW, 0)
    guard descriptor >= 0 else { throw NativeTree.failure("open", file.path, -descriptor) }
    defer { close(descriptor) }
    guard ftruncate(descriptor, off_t(size)) == 0, fchmod(descriptor, file.permissions) == 0 else {
      throw NativeTree.failure("fchmod", file.path)
    }
    try Self.setModified(modified, of: descriptor, file.path)
  }

  private static func setModified(_ modified: Int64, of descriptor: Int32, _ path: String) throws {
    let parts = NativeTime.parts(modified)
    let time = timespec(tv_sec: parts.seconds, tv_nsec: parts.nanoseconds)
    guard futimens(descriptor, [time, time]) == 0 else { throw NativeTree.failure("futimens", path) }
  }

  /// Removes a file that does not become whole.
  func remove(_ file: Unfinished) {
    unlink(file.temporary)
    state.withLock { _ = $0.temporaries.remove(file.temporary) }
  }

  /// Makes a symbolic link, or puts it in the place of a file or link.
  func makeLink(_ path: String, to target: [UInt8], replacing: Bool) throws {
    var status = stat()
    if lstat(path, &status) == 0 {
      if status.st_mode & S_IFMT == S_IFDIR { throw ContainerError(.isADirectory, nativePath: path) }
      if !replacing { throw ContainerError(.fileExists, nativePath: path) }
    } else if errno != ENOENT {
      throw NativeTree.failure("lstat", path)
    }
    let temporary = temporaryPath(for: path)
    guard symlink(String(decoding: target, as: UTF8.self), temporary) == 0 else {
      throw NativeTree.failure("symlink", path)
    }
    guard rename(temporary, path) == 0 else {
      let code = errno
      unlink(temporary)
      throw NativeTree.failure("rename", path, code)
    }
  }

  /// Removes what was made and not finished.
  func undo() {
    let (directories, temporaries) = state.withLock { ($0.directories, $0.temporaries) }
    for temporary in temporaries { unlink(temporary) }
    for directory in directories.reversed() { rmdir(directory) }  // fails, rightly, where a finished file is
  }
}
