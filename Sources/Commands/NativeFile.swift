import CPosix
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What `cp` asks of the native file system, and does there.
enum NativeFile {
  /// Whether two paths name one directory. Throws `nativeMissing` when one names nothing.
  static func isSame(_ a: String, _ b: String) throws -> Bool {
    let (a, b) = (try status(a), try status(b))
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino
  }

  /// Nil when there is nothing; pipes and devices pass for files. Links are followed.
  static func kind(at path: String) throws -> FileKind? {
    switch try NativeKind(at: path) {
    case .missing: nil
    case .directory: .directory
    case .file, .stream: .file
    }
  }

  static func isLink(_ path: String) throws -> Bool {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      guard errno == ENOENT || errno == ENOTDIR else { throw CommandError.native("lstat", path, errno) }
      return false
    }
    return status.st_mode & S_IFMT == S_IFLNK
  }

  static func destination(ofLink path: String) throws -> String {
    var target = [UInt8](repeating: 0, count: Int(PATH_MAX) + 1)
    let count = target.withUnsafeMutableBytes {
      readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
    }
    guard count >= 0 else { throw CommandError.native("readlink", path, errno) }
    guard let text = String(validating: target[..<count], as: UTF8.self) else {
      throw ContainerError(
        .cannotStore, nativePath: path, detail: "a symbolic link whose target is not UTF-8")
    }
    return text
  }

  /// Makes a symbolic link, or puts it in the place of a file or link.
  static func makeLink(_ path: String, to target: String) throws {
    if try !isLink(path) && kind(at: path) == .directory {
      throw ContainerError(.isADirectory, nativePath: path)
    }
    try replace(path) { temporary in
      guard symlink(target, temporary) == 0 else { throw CommandError.native("symlink", path, errno) }
    }
  }

  /// Puts what `make` makes at a path beside it in the place of a file or link: whoever reads finds the one or the other.
  static func replace(_ path: String, _ make: (_ temporary: String) throws -> Void) throws {
    let temporary = PathText.joined(
      PathText.parent(path), ".opendynamics-\(String(UInt64.random(in: 0...(.max)), radix: 16)).part")
    do {
      try make(temporary)
      guard rename(temporary, path) == 0 else { throw CommandError.native("rename", path, errno) }
    } catch {
      unlink(temporary)
      throw error
    }
  }

  /// Sets the date, where the file system keeps dates.
  static func setModified(_ path: String, _ nanoseconds: Int64) throws {
    let parts = NativeTime.parts(nanoseconds)
    let time = timespec(tv_sec: parts.seconds, tv_nsec: parts.nanoseconds)
    guard utimensat(AT_FDCWD, path, [time, time], 0) == 0 || errno == EPERM || errno == EOPNOTSUPP else {
      throw CommandError.native("utimensat", path, errno)
    }
  }

  private static func status(_ path: String) throws -> stat {
    var status = stat()
    guard stat(path, &status) == 0 else { throw CommandError.native("stat", path, errno) }
    return status
  }
}
