import CPosix
import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

func errorText(_ code: Int32) -> String { String(cString: strerror(code)) }

/// A container in a directory of the native file system.
///
/// Symbolic links are followed in the path to that directory, but not inside it. The directory is opened once and held, so that a
/// container that is moved while it is open stays itself, and whatever comes to its old place stays untouched.
package final class PosixBlockIO: BlockIO {
  package let place: String
  private let held = Guarded<OpenDirectory?>(nil)

  package init(_ directory: String) { place = directory }

  package var directory: OpenDirectory? { held.withLock { $0 } }

  package var isThere: Bool {
    var status = stat()
    return directory != nil || stat(place, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }

  private func hold() throws(IOFailure) -> OpenDirectory {
    try held.withLock { held throws(IOFailure) in
      if let held { return held }
      let directory = try OpenDirectory(place)
      held = directory
      return directory
    }
  }

  package func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    let flags =
      switch access {
      case .read: O_RDONLY
      case .readWrite: O_RDWR
      case .createNew: O_RDWR | O_CREAT | O_EXCL
      }
    let location = try location(path)
    // Without O_NONBLOCK, open(2) of a pipe waits for its other end.
    let descriptor = try check(
      cposix_open_at(location.descriptor, location.name, flags | O_NOFOLLOW | O_NONBLOCK, 0o600),
      access == .createNew ? "create" : "open", path)
    let file = PosixBlockFile(descriptor: descriptor, name: path)
    if access == .createNew {
      // The container is used by its owner, who could not even read what belongs to root.
      if let owner = try hold().foreignOwner {
        let status = fchown(descriptor, owner.user, owner.group)
        // Some file systems give every file one owner, whoever makes it.
        if status != 0, !noOwners.contains(errno) { throw IOFailure("fchown", path, errno: errno) }
      }
      return file
    }
    var status = stat()
    try check(fstat(descriptor, &status) == 0 ? 0 : -errno, "fstat", path)
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw IOFailure("open", path + ", which is no regular file,", errno: EINVAL)
    }
    // The container's own files are written in place: whatever else has that name would change with them.
    guard access == .read || status.st_nlink <= 1 || path.contains("/") else {
      throw IOFailure("open", path + ", which has another name (a hard link),", errno: EMLINK)
    }
    return file
  }

  package func identity(of path: String) throws(IOFailure) -> FileIdentity? {
    let location = try location(path)
    var status = stat()
    guard fstatat(location.descriptor, location.name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      if errno == missingFile { return nil }
      throw IOFailure("stat", path, errno: errno)
    }
    return FileIdentity(status)
  }

  package func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) {
    var system = statvfs()
    let directory = try hold()
    try check(fstatvfs(directory.descriptor, &system) == 0 ? 0 : -errno, "statvfs", "the container")
    func byteCount(_ blockCount: some BinaryInteger) -> UInt64 {
      let (product, overflows) = UInt64(blockCount).multipliedReportingOverflow(by: UInt64(system.f_frsize))
      return overflows ? .max : product
    }
    return (byteCount(system.f_blocks), byteCount(system.f_bavail))
  }

  package func requireDirectory(_ path: String) throws(IOFailure) {
    if let descriptor = try openDirectory(path) { close(descriptor) }
  }

  /// Opens a directory for reading; returns nil when it is missing.
  private func openDirectory(_ path: String) throws(IOFailure) -> Int32? {
    do throws(IOFailure) {
      let name = path.isEmpty ? "." : path
      return try check(
        cposix_open_at(hold().descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), "opendir", path)
    } catch {
      guard error.errno == missingFile else { throw error }
      return nil
    }
  }

  package func fileNames(in directory: String) throws(IOFailure) -> [String] {
    guard let descriptor = try openDirectory(directory) else { return [] }
    guard let stream = fdopendir(descriptor) else {
      let code = errno
      close(descriptor)
      throw IOFailure("opendir", directory, errno: code)
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0  // errno alone distinguishes a failure of readdir(3) from the end
      guard let entry = readdir(stream) else {
        let code = errno
        if code != 0 { throw IOFailure("readdir", directory, errno: code) }
        return names
      }
      let name = withUnsafeBytes(of: &entry.pointee.d_name) {
        String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name != ".", name != ".." { names.append(name) }
    }
  }

  package func createDirectory(_ path: String) throws(IOFailure) {
    guard path.isEmpty else {
      let directory = try hold()
      try check(mkdirat(directory.descriptor, path, 0o700) == 0 ? 0 : -errno, "mkdir", path)
      if let owner = directory.foreignOwner {
        let status = fchownat(directory.descriptor, path, owner.user, owner.group, AT_SYMLINK_NOFOLLOW)
        if status != 0, !noOwners.contains(errno) { throw IOFailure("fchown", path, errno: errno) }
      }
      return
    }
    try check(mkdir(place, 0o700) == 0 ? 0 : -errno, "mkdir", path)
    do throws(IOFailure) {
      // Makes the container's own name durable: not every file system does so with the contents.
      let descriptor = cposix_open_at(try hold().descriptor, "..", O_RDONLY | O_DIRECTORY, 0)
      guard descriptor >= 0 else { return }
      defer { close(descriptor) }
      try check(synchronizeFully(descriptor), "fsync", path)
    } catch {
      try? removeDirectory("")  // a failed call leaves the path free
      throw error
    }
  }

  package func removeDirectory(_ path: String) throws(IOFailure) {
    let directory = try hold()
    if !path.isEmpty {
      try check(unlinkat(directory.descriptor, path, AT_REMOVEDIR) == 0 ? 0 : -errno, "rmdir", path)
      return
    }
    // Another one may be at its place by now.
    guard directory.isAt(place) else { throw IOFailure("rmdir", path, errno: missingFile) }
    try check(rmdir(place) == 0 ? 0 : -errno, "rmdir", path)
    held.withLock { $0 = nil }
  }

  package func remove(_ path: String) throws(IOFailure) {
    let location = try location(path)
    try check(unlinkat(location.descriptor, location.name, 0) == 0 ? 0 : -errno, "unlink", path)
  }

  package func rename(_ path: String, to newPath: String) throws(IOFailure) {
    let (old, new) = (try location(path), try location(newPath))
    let status = renameat(old.descriptor, old.name, new.descriptor, new.name)
    try check(status == 0 ? 0 : -errno, "rename", path)
  }

  package func synchronizeDirectory(_ path: String) throws(IOFailure) {
    guard let descriptor = try openDirectory(path) else { throw IOFailure("open", path, errno: missingFile) }
    defer { close(descriptor) }
    try check(synchronizeFully(descriptor), "fsync", path)
  }

  /// The open directory of a file, and the file's name in it.
  private func location(_ path: String) throws(IOFailure) -> Location {
    let parts = path.split(separator: "/", maxSplits: 1)
    let directory = try hold()
    return Location(
      directory: parts.count == 2 ? try OpenDirectory(directory, String(parts[0])) : directory,
      name: String(parts[parts.count - 1]))
  }

  private struct Location {
    let directory: OpenDirectory
    let name: String
    var descriptor: Int32 { directory.descriptor }
  }
}

/// A directory of the native file system that is open for the calls that name something in it.
package final class OpenDirectory: Sendable {
  package let descriptor: Int32

  /// Links in the path are followed.
  package init(_ path: String) throws(IOFailure) {
    descriptor = try check(cposix_open_directory(AT_FDCWD, path, 1), "open", "")
  }

  /// A directory in another one, and no link to one.
  fileprivate init(_ directory: OpenDirectory, _ name: String) throws(IOFailure) {
    descriptor = try check(cposix_open_directory(directory.descriptor, name, 0), "open", name)
  }

  deinit { close(descriptor) }

  /// The owner of the directory, to whom new files in it belong, when this process is root and he is not.
  fileprivate var foreignOwner: (user: uid_t, group: gid_t)? {
    var status = stat()
    guard geteuid() == 0, fstat(descriptor, &status) == 0, status.st_uid != 0 else { return nil }
    return (status.st_uid, status.st_gid)
  }

  /// Nil when the system does not tell.
  var identity: FileIdentity? {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? FileIdentity(status) : nil
  }

  fileprivate func isAt(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) == 0 && FileIdentity(status) == identity
  }
}

/// Calls fsync(2) for a directory, and repeats it when a signal interrupts it.
private func synchronizeFully(_ descriptor: Int32) -> Int32 {
  while fsync(descriptor) != 0 {
    if noDirectorySync.contains(errno) { return 0 }
    if errno != EINTR { return -errno }
  }
  return 0
}

/// The result of a call that returns a negative error number when it fails; throws that failure.
@discardableResult
func check(_ result: Int32, _ operation: String, _ path: String) throws(IOFailure) -> Int32 {
  guard result < 0 else { return result }
  throw IOFailure(operation, path.isEmpty ? "the container" : path, errno: -result)
}
