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
/// removed. Nothing takes the place of what the same export has made, whatever the file system takes
/// for one name. Contents count; permissions and dates are attempted.
final class NativeOutput: Sendable {
  /// A file that does not have its final name yet. Errors contain the final path.
  struct Unfinished: Sendable {
    let temporary: String
    let path: String
    /// Permissions of the finished file. The umask is already applied, unless `isWhole` is set.
    let permissions: mode_t
    /// Whether ``writeWhole(_:to:modified:)`` creates the file with all its contents.
    let isWhole: Bool
    /// What the file is to replace; nil when there was nothing.
    let replaced: FileIdentity?
  }

  private struct State {
    var directories: [String] = []
    var temporaries: Set<String> = []
    var nameCount = 0
    var refusesAttributes = false
  }
  private let state = Guarded(State())
  /// Whether the file system has refused to keep permissions or dates.
  var refusesAttributes: Bool { state.withLock { $0.refusesAttributes } }

  /// Throws the failure of a call that sets permissions or dates, unless the file system just does not keep them.
  private func attempt(_ operation: String, _ path: String, _ result: Int32) throws {
    guard result != 0 else { return }
    guard [EPERM, ENOTSUP, EOPNOTSUPP, ENOSYS].contains(errno) else {
      throw NativeTree.failure(operation, path)
    }
    state.withLock { $0.refusesAttributes = true }
  }

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

  /// Checks that an exported file may be written to a path, and returns what is there.
  static func check(_ path: String, replacing: Bool) throws -> FileIdentity? {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      guard errno == ENOENT else { throw NativeTree.failure("lstat", path) }
      return nil
    }
    let found = FileIdentity(status)
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
    return found
  }

  /// Whether anything has that name.
  static func isTaken(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0
  }

  /// Begins an unfinished file beside its destination; the destination is created or replaced when
  /// the file is complete. A file written `inOnePiece` is created only by
  /// ``writeWhole(_:to:modified:)``, which opens it once instead of three times.
  func begin(
    _ path: String, replacing replaced: FileIdentity?, size: UInt64, permissions: UInt16, inOnePiece: Bool
  ) throws -> Unfinished {
    let temporary = temporaryPath(for: path)
    let permissions = mode_t(permissions & NativePermissions.mask)
    guard !inOnePiece else {
      return Unfinished(
        temporary: temporary, path: path, permissions: permissions, isWhole: true, replaced: replaced)
    }
    let status = try makeTemporary(temporary, for: path, size: size, permissions: permissions)
    return Unfinished(
      temporary: temporary, path: path, permissions: status.st_mode & permissions, isWhole: false,
      replaced: replaced)
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
    try setModified(modified, of: descriptor, file.path)
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
    do {
      guard fstat(descriptor, &status) == 0 else { throw NativeTree.failure("fstat", path) }
      try attempt("fchmod", path, fchmod(descriptor, 0o600))
    } catch {
      close(descriptor)
      unlink(temporary)
      throw error
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
    try rename(file.temporary, to: file.path, replacing: file.replaced)
    state.withLock { _ = $0.temporaries.remove(file.temporary) }
  }

  /// Renames to a name that is free, or leads to what was there before the export.
  private func rename(_ temporary: String, to path: String, replacing replaced: FileIdentity?) throws {
    let isTaken: Bool
    if let replaced {
      // One after the other: two names of a folder can be one in this file system.
      isTaken = try state.withLock { _ in
        var status = stat()
        if lstat(path, &status) == 0, FileIdentity(status) != replaced { return true }
        #if canImport(Glibc)
          guard Glibc.rename(temporary, path) == 0 else { throw NativeTree.failure("rename", path) }
        #elseif canImport(Musl)
          guard Musl.rename(temporary, path) == 0 else { throw NativeTree.failure("rename", path) }
        #elseif canImport(Darwin)
          guard Darwin.rename(temporary, path) == 0 else { throw NativeTree.failure("rename", path) }
        #endif
        return false
      }
    } else {
      let code = -cposix_rename_new(temporary, path)
      isTaken = code == EEXIST
      if code != 0, !isTaken { throw NativeTree.failure("rename", path, code) }
    }
    if isTaken {
      throw ContainerError(
        .fileExists, nativePath: path,
        detail:
          "it came there meanwhile: another item of the folder may have the same name in this file system")
    }
  }

  private func complete(_ file: Unfinished, size: UInt64, modified: Int64) throws {
    let descriptor = cposix_open(file.temporary, O_WRONLY | O_NOFOLLOW, 0)
    guard descriptor >= 0 else { throw NativeTree.failure("open", file.path, -descriptor) }
    defer { close(descriptor) }
    guard ftruncate(descriptor, off_t(size)) == 0 else { throw NativeTree.failure("ftruncate", file.path) }
    try attempt("fchmod", file.path, fchmod(descriptor, file.permissions))
    try setModified(modified, of: descriptor, file.path)
  }

  private func setModified(_ modified: Int64, of descriptor: Int32, _ path: String) throws {
    let parts = NativeTime.parts(modified)
    let time = timespec(tv_sec: parts.seconds, tv_nsec: parts.nanoseconds)
    try attempt("futimens", path, futimens(descriptor, [time, time]))
  }

  /// Gives a finished file one more name, or where the file system does not, a copy of it.
  func addName(_ path: String, to file: Unfinished, replacing replaced: FileIdentity?) throws {
    let temporary = temporaryPath(for: path)
    if link(file.path, temporary) != 0 {
      guard [EPERM, EMLINK, ENOTSUP, EOPNOTSUPP, ENOSYS, EXDEV].contains(errno) else {
        throw NativeTree.failure("link", path)
      }
      try copy(file, to: temporary, for: path)
    }
    do { try rename(temporary, to: path, replacing: replaced) } catch {
      unlink(temporary)
      throw error
    }
  }

  private func copy(_ file: Unfinished, to temporary: String, for path: String) throws {
    let source = cposix_open(file.path, O_RDONLY | O_NOFOLLOW, 0)
    guard source >= 0 else { throw NativeTree.failure("open", file.path, -source) }
    defer { close(source) }
    var status = stat()
    guard fstat(source, &status) == 0 else { throw NativeTree.failure("fstat", file.path) }
    let size = UInt64(status.st_size)
    let copy = Unfinished(
      temporary: temporary, path: path, permissions: status.st_mode & 0o777, isWhole: false, replaced: nil)
    do {
      _ = try makeTemporary(temporary, for: path, size: size, permissions: copy.permissions)
      var piece = [UInt8](repeating: 0, count: 1 << 20)
      var offset: UInt64 = 0
      while offset < size {
        let count = try piece.withUnsafeMutableBytes { buffer in
          let count = try NativeTree.naming(file.path) { () throws(IOFailure) in
            try readFully(source, into: buffer, at: offset, name: NativeTree.anyFile)
          }
          try write(UnsafeRawBufferPointer(rebasing: buffer[..<count]), to: copy, at: offset)
          return count
        }
        if count == 0 { break }
        offset += UInt64(count)
      }
      try complete(copy, size: size, modified: NativeTime.modified(status))
      state.withLock { _ = $0.temporaries.remove(temporary) }
    } catch {
      remove(copy)
      throw error
    }
  }

  /// Removes a file that will not be completed.
  func remove(_ file: Unfinished) {
    unlink(file.temporary)
    state.withLock { _ = $0.temporaries.remove(file.temporary) }
  }

  /// What a link may take the place of; nil when nothing is there.
  static func checkLink(_ path: String, replacing: Bool) throws -> FileIdentity? {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      guard errno == ENOENT else { throw NativeTree.failure("lstat", path) }
      return nil
    }
    if status.st_mode & S_IFMT == S_IFDIR { throw ContainerError(.isADirectory, nativePath: path) }
    if !replacing { throw ContainerError(.fileExists, nativePath: path) }
    return FileIdentity(status)
  }

  /// Makes a symbolic link.
  func makeLink(_ path: String, to target: [UInt8], replacing replaced: FileIdentity?) throws {
    let temporary = temporaryPath(for: path)
    guard symlink(String(decoding: target, as: UTF8.self), temporary) == 0 else {
      throw NativeTree.failure("symlink", path)
    }
    do { try rename(temporary, to: path, replacing: replaced) } catch {
      unlink(temporary)
      throw error
    }
  }

  /// Removes everything that was made and not finished.
  func undo() {
    let (directories, temporaries) = state.withLock { ($0.directories, $0.temporaries) }
    for temporary in temporaries { unlink(temporary) }
    for directory in directories.reversed() { rmdir(directory) }  // keeps a directory with a finished file
  }
}
