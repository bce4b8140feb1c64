import AppRuntime
import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The native files that ``GDFileManager`` may read where the container has nothing.
///
/// Only regular files and directories are visible. Hidden are
///
/// - links, pipes, sockets and devices at the end of a path,
/// - the directories of the app's own container and state, with everything below them,
/// - in a directory that everybody may write to, such as `/tmp`: items of other users, with everything
///   below them. A file that somebody puts there must not pass for one of the container.
///
/// Nothing here writes, except for ``NativeItem/remove(ifStill:)``.
struct NativeFiles: Sendable {
  /// The most directories above an item. Deeper items are hidden.
  private static let depthMax = 1024

  /// Directories, by their paths.
  let hidden: [String]

  /// The item at an absolute path; nil for a relative one, and for an item that is hidden or missing.
  func item(at path: String) -> NativeItem? {
    guard let (parent, name) = Self.split(path) else { return nil }
    let directory = cposix_open_directory(AT_FDCWD, parent, 1)
    guard directory >= 0 else { return nil }
    guard let status = NativeStatus(name: name, in: directory), let kind = status.kind,
      kind == .directory || path.utf8.last != UInt8(ascii: "/"), isVisible(status, in: directory)
    else {
      close(directory)
      return nil
    }
    return NativeItem(path: path, kind: kind, status.identity, name, in: directory)
  }

  /// Whether an item in a directory may be read. The way up to the root is that of the directories
  /// themselves: no link and no mount hides a part of it.
  private func isVisible(_ status: NativeStatus, in directory: Int32) -> Bool {
    let hidden = self.hidden.compactMap { NativeStatus(path: $0)?.identity }
    guard !hidden.contains(status.identity) else { return false }
    var below = status
    var current = directory
    defer { if current != directory { close(current) } }
    for _ in 0..<Self.depthMax {
      guard let status = NativeStatus(descriptor: current), !hidden.contains(status.identity),
        below.isTrusted || !status.isWritableByOthers
      else { return false }
      below = status
      let parent = cposix_open_directory(current, "..", 1)
      guard parent >= 0 else { return false }
      if current != directory { close(current) }
      current = parent
      if NativeStatus(descriptor: parent)?.identity == status.identity { return true }
    }
    return false
  }

  /// The directory and the last name of an absolute path, without slashes at its end. The name is
  /// `.` for a path that ends without one.
  private static func split(_ path: String) -> (parent: String, name: String)? {
    // A zero would end the path for the system.
    guard path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else { return nil }
    guard let item = path.withoutSlashesAtEnd, let slash = item.utf8.lastIndex(of: UInt8(ascii: "/"))
    else { return ("/", ".") }
    let name = String(Substring(item.utf8[item.utf8.index(after: slash)...]))
    guard name != ".", name != ".." else { return (item, ".") }
    let parent = String(Substring(item.utf8[..<slash]))
    return (parent.isEmpty ? "/" : parent, name)
  }
}

/// A native regular file or directory, as a name in a directory that is held open: the file that was
/// examined is the one that is read or removed, whatever happens to the path. What is copied goes by the path.
final class NativeItem: Sendable {
  /// The path, as it was written.
  let path: String
  let kind: NativeStatus.Kind
  private let identity: NativeStatus.Identity
  private let name: String
  private let directory: Int32

  /// Takes the descriptor of the directory over.
  fileprivate init(
    path: String, kind: NativeStatus.Kind, _ identity: NativeStatus.Identity, _ name: String,
    in directory: Int32
  ) {
    (self.path, self.kind, self.identity, self.name) = (path, kind, identity, name)
    self.directory = directory
  }

  deinit { close(directory) }

  /// Whether the system lets this process read the item.
  var isReadable: Bool { faccessat(directory, name, R_OK, 0) == 0 }

  /// Whether a directory may hold something that is hidden: one of these directories, or items of others.
  func mayHide(_ hidden: [String]) -> Bool {
    guard let status = NativeStatus(name: name, in: directory), !status.isWritableByOthers else {
      return true
    }
    return hidden.contains { path in
      var current = cposix_open_directory(AT_FDCWD, path, 1)
      while current >= 0 {
        let found = NativeStatus(descriptor: current)?.identity
        let parent = cposix_open_directory(current, "..", 1)
        close(current)
        guard let found, found != identity, parent >= 0 else {
          if parent >= 0 { close(parent) }
          return true
        }
        if NativeStatus(descriptor: parent)?.identity == found {
          close(parent)
          return false
        }
        current = parent
      }
      return false
    }
  }

  /// Opens a file. Throws errors of `GDFileManagerErrorDomain`.
  func open() throws -> NativeFile {
    guard kind == .file else { throw FileErrors.of(.EISDIR, path: path) }
    // O_NONBLOCK: some files of /proc and /sys would wait for contents, and a pipe that has replaced
    // the file for its other end. They fail instead.
    let descriptor = cposix_open_at(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0)
    guard descriptor >= 0 else { throw FileErrors.of(errno: -descriptor, path: path) }
    let file = NativeFile(descriptor, path: path)
    let status = try file.status()
    guard status.kind == .file, status.identity == identity else {
      throw FileErrors.of(.ENOENT, path: path)
    }
    return file
  }

  /// Throws when the system does not let this process remove names from the directory. Even so
  /// ``remove(ifStill:)`` may fail.
  func requireRemovable() throws {
    guard faccessat(directory, ".", W_OK | X_OK, 0) == 0 else {
      throw FileErrors.of(errno: errno, path: path, isReading: false)
    }
  }

  /// Removes the name of a file: the one change that this module makes to the native file system.
  /// Throws when the name leads to another file than before, or to one that was changed. A file that
  /// is put there between this check and the removal is lost: no system call does both.
  func remove(ifStill before: NativeStatus) throws {
    guard NativeStatus(name: name, in: directory) == before else {
      throw FileErrors.of(.EBUSY, path: path, isReading: false)
    }
    guard unlinkat(directory, name, 0) == 0 else {
      throw FileErrors.of(errno: errno, path: path, isReading: false)
    }
  }
}

extension String {
  /// Nil for a path that has nothing else, which is the root. Slashes are bytes: a combining mark
  /// behind one is another name.
  var withoutSlashesAtEnd: String? {
    guard let last = utf8.lastIndex(where: { $0 != UInt8(ascii: "/") }) else { return nil }
    return String(Substring(utf8[...last]))
  }
}

extension NativePaths {
  /// The absolute path that a text names natively: as it is written, and nowhere else. Nil for a
  /// relative one.
  static func written(_ path: String) -> String? {
    if path.hasPrefix("file:"), let url = URL(string: path), url.isFileURL {
      return written(url.path(percentEncoded: false))
    }
    return path.utf8.first == UInt8(ascii: "/") ? path : nil
  }
}

extension HostedApp {
  /// Nil before the runtime has begun.
  var nativeFiles: NativeFiles? {
    state.withLock { $0.runtime }.map { runtime in
      NativeFiles(hidden: ["", ".runtime", ".push"].map { runtime.url.path + $0 })
    }
  }
}
