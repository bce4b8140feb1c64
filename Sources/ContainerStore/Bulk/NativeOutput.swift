import CPosix
import EncryptedFile
import Locks
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Files and directories that an export makes; if the export fails, all unfinished ones are
/// removed.
final class NativeOutput: Sendable {
  /// A file that does not have its final name yet. Errors contain the final path.
  struct Unfinished: Sendable {
    let temporary: String
    let path: String
    /// Permissions of the finished file. The umask is already applied, unless `isWhole` is set.
    let permissions: mode_t
    /// Whether ``writeWhole(_:to:modified:)`` creates the file with all its contents.
    let isWhole: Bool
  }

  private struct State {
    var directories: [String] = []
    var temporaries: Set<String> = []
    var nameCount = 0
  }
  private let state = Guarded(State())
  /// Part of the names of unfinished files, which distinguishes them from those of other exports.
  private let identifier = Identifier.random().hex

  /// Makes a directory, or keeps an existing one, and returns whether it is new. A link to a
  /// directory counts as one only if `followingLinks` is set: otherwise files of the container
  /// would be written to wherever the link leads.
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

  /// Checks that an exported file may be written to a path.
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
    // A link whose target does not exist is replaced like a file.
    switch status.st_mode & S_IFMT {
    case S_IFDIR: throw ContainerError(.isADirectory, nativePath: path)
    case S_IFREG, S_IFLNK: break
    default:
      throw ContainerError(.fileExists, nativePath: path, detail: "it is neither a file nor a directory")
    }
    if !replacing { throw ContainerError(.fileExists, nativePath: path) }
  }

  /// Begins an unfinished file beside its destination; the destination is created or replaced when
  /// the file is complete. A file written `inOnePiece` is created only by
  /// ``writeWhole(_:to:modified:)``, which opens it once instead of three times.
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

  /// Creates the file with its contents, permissions and date of modification, under its temporary
  /// name.
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

  /// Creates the temporary file and returns its status, with the permissions that the umask leaves.
  /// Until the file is finished it has fewer permissions.
  private func makeTemporary(
    _ temporary: String, for path: String, size: UInt64, permissions: mode_t
  ) throws -> stat {
    let descriptor = cposix_open(temporary, O_WRONLY | O_CREAT | O_EXCL, permissions)
    guard descriptor >= 0 else { throw NativeTree.failure("open", path, -descriptor) }
    // The new file shows the effect of the umask. A process cannot read its umask without changing
    // it for all threads.
    var status = stat()
    guard fstat(descriptor, &status) == 0, fchmod(descriptor, 0o600) == 0 else {
      let code = errno
      close(descriptor)
      unlink(temporary)
      throw NativeTree.failure("fchmod", path, code)
    }
    // Threads write the file in pieces; with preallocated blocks they wait less for one another.
    if size >= 16 << 20 { _ = cposix_preallocate(descriptor, Int64(size)) }
    close(descriptor)
    state.withLock { _ = $0.temporaries.insert(temporary) }
    return status
  }

  /// An unused name in the directory of `path`.
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

  /// Sets the file's length, permissions and date of modification, and gives it its final name.
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

  /// Removes a file that will not be completed.
  func remove(_ file: Unfinished) {
    unlink(file.temporary)
    state.withLock { _ = $0.temporaries.remove(file.temporary) }
  }

  /// Makes a symbolic link; with `replacing`, it replaces an existing file or link.
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

  /// Removes everything that was made and not finished.
  func undo() {
    let (directories, temporaries) = state.withLock { ($0.directories, $0.temporaries) }
    for temporary in temporaries { unlink(temporary) }
    for directory in directories.reversed() { rmdir(directory) }  // keeps a directory with a finished file
  }
}
