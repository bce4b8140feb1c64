import CPosix

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
/// Symbolic links are followed in the path to that directory, but not inside it.
package final class PosixBlockIO: BlockIO {
  package let place: String

  package init(_ directory: String) { place = directory }

  package var isThere: Bool {
    var status = stat()
    return stat(place, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }

  package func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    let flags =
      switch access {
      case .read: O_RDONLY
      case .readWrite: O_RDWR
      case .createNew: O_RDWR | O_CREAT | O_EXCL
      }
    let location = try Location(path, in: place)
    // Without O_NONBLOCK, open(2) of a pipe waits for its other end.
    let descriptor = try check(
      cposix_open_at(location.directory, location.name, flags | O_NOFOLLOW | O_NONBLOCK, 0o600), "open", path)
    let file = PosixBlockFile(descriptor: descriptor, name: path)
    if access == .createNew { return file }
    var status = stat()
    try check(fstat(descriptor, &status) == 0 ? 0 : -errno, "fstat", path)
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw IOFailure("open", path + ", which is no regular file,", errno: EINVAL)
    }
    return file
  }

  package func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64) {
    var system = statvfs()
    try check(statvfs(place, &system) == 0 ? 0 : -errno, "statvfs", "the container")
    let blockByteCount = UInt64(system.f_frsize)
    return (UInt64(system.f_blocks) * blockByteCount, UInt64(system.f_bavail) * blockByteCount)
  }

  package func requireDirectory(_ path: String) throws(IOFailure) {
    if let descriptor = try openDirectory(path) { close(descriptor) }
  }

  /// Opens a directory for reading; returns nil when it is missing.
  private func openDirectory(_ path: String) throws(IOFailure) -> Int32? {
    let descriptor = cposix_open(native(path), Self.flags(path), 0)
    return descriptor == -missingFile ? nil : try check(descriptor, "opendir", path)
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
    _ = try check(mkdir(native(path), 0o700) == 0 ? 0 : -errno, "mkdir", path)
    guard path.isEmpty else { return }
    // Makes the container's own name durable: not every file system does so with the contents.
    let descriptor = cposix_open(place + "/..", O_RDONLY | O_DIRECTORY, 0)
    guard descriptor >= 0 else { return }
    defer { close(descriptor) }
    do throws(IOFailure) {
      _ = try check(synchronizeFully(descriptor), "fsync", path)
    } catch {
      rmdir(place)  // a failed call leaves the path free
      throw error
    }
  }

  package func removeDirectory(_ path: String) throws(IOFailure) {
    _ = try check(rmdir(native(path)) == 0 ? 0 : -errno, "rmdir", path)
  }

  package func remove(_ path: String) throws(IOFailure) {
    let location = try Location(path, in: place)
    _ = try check(unlinkat(location.directory, location.name, 0) == 0 ? 0 : -errno, "unlink", path)
  }

  package func rename(_ path: String, to newPath: String) throws(IOFailure) {
    let (old, new) = (try Location(path, in: place), try Location(newPath, in: place))
    let status = renameat(old.directory, old.name, new.directory, new.name)
    _ = try check(status == 0 ? 0 : -errno, "rename", path)
  }

  package func synchronizeDirectory(_ path: String) throws(IOFailure) {
    let descriptor = try check(cposix_open(native(path), Self.flags(path), 0), "open", path)
    defer { close(descriptor) }
    _ = try check(synchronizeFully(descriptor), "fsync", path)
  }

  private func native(_ path: String) -> String { path.isEmpty ? place : place + "/" + path }

  private static func flags(_ directory: String) -> Int32 {
    O_RDONLY | O_DIRECTORY | (directory.isEmpty ? 0 : O_NOFOLLOW)
  }
}

/// Calls fsync(2), and repeats it when a signal interrupts it.
private func synchronizeFully(_ descriptor: Int32) -> Int32 {
  while fsync(descriptor) != 0 {
    if errno != EINTR { return -errno }
  }
  return 0
}

/// The open directory of a file, and the file's name in it.
private final class Location {
  let directory: Int32
  let name: String

  init(_ path: String, in place: String) throws(IOFailure) {
    let parts = path.split(separator: "/", maxSplits: 1)
    let isNested = parts.count == 2
    name = String(parts[parts.count - 1])
    let native = isNested ? place + "/" + parts[0] : place
    directory = try check(
      cposix_open_directory(native, isNested ? 0 : 1), "open", isNested ? String(parts[0]) : "")
  }

  deinit { close(directory) }
}

/// The result of a call that returns a negative error number when it fails; throws that failure.
@discardableResult
func check(_ result: Int32, _ operation: String, _ path: String) throws(IOFailure) -> Int32 {
  guard result < 0 else { return result }
  throw IOFailure(operation, path.isEmpty ? "the container" : path, errno: -result)
}
