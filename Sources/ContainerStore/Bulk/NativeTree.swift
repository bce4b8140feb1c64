import CPosix
import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file, directory or symbolic link of the native file system that is to be imported.
struct NativeItem: Sendable {
  var path: String
  /// Below the imported item; empty for itself.
  var names: [FileName]
  var kind: FileKind
  /// Where a symbolic link leads.
  var target: [UInt8] = []
  var size: UInt64
  var permissions: UInt16
  var modified: Int64
  /// Tells whether the path still names the same file in the same state.
  var fingerprint: [Int64]

  fileprivate init(path: String, names: [FileName], status: stat) {
    self.path = path
    self.names = names
    kind =
      switch status.st_mode & S_IFMT {
      case S_IFDIR: .directory
      case S_IFLNK: .symbolicLink
      default: .file
      }
    size = UInt64(status.st_size)
    permissions = UInt16(status.st_mode & 0o7777)
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    modified = NativeTime.nanoseconds(seconds: time.tv_sec, nanoseconds: time.tv_nsec)
    fingerprint = [
      Int64(status.st_dev), Int64(bitPattern: UInt64(status.st_ino)), Int64(status.st_size), modified,
    ]
  }

  /// The item and everything below it, parents first; a link at the path itself is followed. Throws `noSuchFile`, and `cannotStore`
  /// for pipes and devices, and for names and targets of links that are not UTF-8.
  static func tree(_ path: String) throws -> [NativeItem] {
    var status = stat()
    guard stat(path, &status) == 0 else { throw failure("stat", path) }
    try checkKind(status, path)
    var items = [NativeItem(path: path, names: [], status: status)]
    var next = 0
    while next < items.count {
      let item = items[next]
      next += 1
      guard item.kind == .directory else { continue }
      for name in try fileNames(in: item.path).sorted() {
        let child = item.path + "/" + name.description
        guard lstat(child, &status) == 0 else { throw failure("lstat", child) }
        try checkKind(status, child)
        var item = NativeItem(path: child, names: item.names + [name], status: status)
        if item.kind == .symbolicLink { item.target = try target(of: child) }
        items.append(item)
      }
    }
    return items
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

  /// Fills the buffer from byte `offset` on. Throws `sourceChanged` when the file is not as it was when it was listed.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws {
    let descriptor = cposix_open(path, O_RDONLY | (names.isEmpty ? 0 : O_NOFOLLOW), 0)
    guard descriptor >= 0 else { throw Self.failure("open", path, -descriptor) }
    defer { close(descriptor) }
    let count = try Self.naming(path) { () throws(IOFailure) in
      try readFully(descriptor, into: buffer, at: offset, name: Self.anyFile)
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw Self.failure("fstat", path) }
    guard count == buffer.count,
      NativeItem(path: path, names: names, status: status).fingerprint == fingerprint
    else { throw ContainerError(.sourceChanged, nativePath: path) }
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

/// Files and directories that an export makes; all of them go again when it fails.
final class NativeOutput: Sendable {
  /// A file that has not got its name yet. Errors name what it is to be.
  struct Unfinished: Sendable {
    let temporary: String
    let path: String
  }

  private struct State {
    var directories: [String] = []
    var temporaries: Set<String> = []
  }
  private let state = Guarded(State())

  /// Leaves a directory that is there. A link to one passes for it only if `followingLinks`: else what is in the container would
  /// be written wherever the link leads.
  func makeDirectory(_ path: String, permissions: UInt16, followingLinks: Bool) throws {
    if mkdir(path, mode_t(permissions) | 0o700) == 0 {
      state.withLock { $0.directories.append(path) }
      return
    }
    let code = errno
    var status = stat()
    if code == EEXIST, (followingLinks ? stat(path, &status) : lstat(path, &status)) == 0 {
      guard status.st_mode & S_IFMT == S_IFDIR else { throw ContainerError(.fileExists, nativePath: path) }
      return
    }
    throw NativeItem.failure("mkdir", path, code)
  }

  /// That an exported file may take the place.
  static func check(_ path: String, replacing: Bool) throws {
    var status = stat()
    if stat(path, &status) != 0 {
      guard errno == ENOENT else { throw NativeItem.failure("stat", path) }
      // A link that leads nowhere is replaced like a file.
      guard lstat(path, &status) == 0 else {
        guard errno == ENOENT else { throw NativeItem.failure("lstat", path) }
        return
      }
    }
    switch status.st_mode & S_IFMT {
    case S_IFDIR: throw ContainerError(.isADirectory, nativePath: path)
    case S_IFREG, S_IFLNK: break
    default:
      throw ContainerError(.fileExists, nativePath: path, detail: "it is neither a file nor a directory")
    }
    if !replacing { throw ContainerError(.fileExists, nativePath: path) }
  }

  /// An unfinished file beside its destination; the destination appears, or is replaced, when it is whole.
  func makeTemporary(for path: String, size: UInt64) throws -> Unfinished {
    let temporary = Self.temporaryPath(for: path)
    let descriptor = cposix_open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0o600)
    guard descriptor >= 0 else { throw NativeItem.failure("open", path, -descriptor) }
    // Threads write it in pieces: with its blocks given ahead they wait less for one another.
    if size >= 16 << 20 { _ = cposix_preallocate(descriptor, Int64(size)) }
    close(descriptor)
    state.withLock { _ = $0.temporaries.insert(temporary) }
    return Unfinished(temporary: temporary, path: path)
  }

  /// A name beside `path` that nothing has.
  private static func temporaryPath(for path: String) -> String {
    let directory = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(
      separator: "/")
    let prefix = directory.isEmpty ? (path.hasPrefix("/") ? "/" : "") : directory + "/"
    return prefix + ".opendynamics-" + Identifier.random().hex + ".part"
  }

  func write(_ bytes: UnsafeRawBufferPointer, to file: Unfinished, at offset: UInt64) throws {
    let descriptor = cposix_open(file.temporary, O_WRONLY | O_NOFOLLOW, 0)
    guard descriptor >= 0 else { throw NativeItem.failure("open", file.path, -descriptor) }
    defer { close(descriptor) }
    try NativeItem.naming(file.path) { () throws(IOFailure) in
      try writeFully(descriptor, bytes, at: offset, name: NativeItem.anyFile)
    }
  }

  /// Gives the file its length, permissions and date of modification, and its name.
  func finish(_ file: Unfinished, size: UInt64, permissions: UInt16, modified: Int64) throws {
    let (temporary, path) = (file.temporary, file.path)
    let descriptor = cposix_open(temporary, O_WRONLY | O_NOFOLLOW, 0)
    guard descriptor >= 0 else { throw NativeItem.failure("open", path, -descriptor) }
    defer { close(descriptor) }
    let parts = NativeTime.parts(modified)
    let time = timespec(tv_sec: parts.seconds, tv_nsec: parts.nanoseconds)
    guard ftruncate(descriptor, off_t(size)) == 0, fchmod(descriptor, mode_t(permissions & 0o777)) == 0,
      futimens(descriptor, [time, time]) == 0
    else { throw NativeItem.failure("fchmod", path) }
    guard rename(temporary, path) == 0 else { throw NativeItem.failure("rename", path) }
    state.withLock { _ = $0.temporaries.remove(temporary) }
  }

  /// Makes a symbolic link, or puts it in the place of a file or link.
  func makeLink(_ path: String, to target: [UInt8], replacing: Bool) throws {
    var status = stat()
    if lstat(path, &status) == 0 {
      if status.st_mode & S_IFMT == S_IFDIR { throw ContainerError(.isADirectory, nativePath: path) }
      if !replacing { throw ContainerError(.fileExists, nativePath: path) }
    } else if errno != ENOENT {
      throw NativeItem.failure("lstat", path)
    }
    let temporary = Self.temporaryPath(for: path)
    guard symlink(String(decoding: target, as: UTF8.self), temporary) == 0 else {
      throw NativeItem.failure("symlink", path)
    }
    guard rename(temporary, path) == 0 else {
      let code = errno
      unlink(temporary)
      throw NativeItem.failure("rename", path, code)
    }
  }

  /// Removes what was made and not finished.
  func undo() {
    let (directories, temporaries) = state.withLock { ($0.directories, $0.temporaries) }
    for temporary in temporaries { unlink(temporary) }
    for directory in directories.reversed() { rmdir(directory) }  // fails, rightly, where a finished file is
  }
}
