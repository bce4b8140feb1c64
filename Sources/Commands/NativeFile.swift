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
    let temporary = PathText.joined(
      PathText.parent(path), ".opendynamics-\(String(UInt64.random(in: 0...(.max)), radix: 16)).part")
    guard symlink(target, temporary) == 0 else { throw CommandError.native("symlink", path, errno) }
    guard rename(temporary, path) == 0 else {
      let code = errno
      unlink(temporary)
      throw CommandError.native("rename", path, code)
    }
  }

  /// What is at a path, links followed.
  static func item(_ path: String) throws -> CopyItem { CopyItem("", try status(path)) }

  /// The item and everything below it, folders before their contents. Links below it are not followed. With `skipping`, what cannot
  /// be looked at is left out.
  static func tree(_ path: String, skipping: ((ContainerError) -> Void)?) throws -> [CopyItem] {
    func leavingOut(_ body: () throws -> Void) throws {
      do { try body() } catch {
        guard let skipping else { throw error }
        let native = error as? CommandError
        skipping(
          error as? ContainerError
            ?? ContainerError(.notPermitted, nativePath: native?.path ?? path, detail: native?.detail))
      }
    }
    var items = [try item(path)]
    var next = 0
    while next < items.count {
      let item = items[next]
      next += 1
      guard item.kind == .directory else { continue }
      let directory = PathText.below(path, item.relative)
      try leavingOut {
        for name in try names(in: directory) {
          try leavingOut {
            var status = stat()
            let child = PathText.joined(directory, name)
            guard lstat(child, &status) == 0 else { throw CommandError.native("lstat", child, errno) }
            let relative = item.relative.isEmpty ? name : PathText.joined(item.relative, name)
            items.append(CopyItem(relative, status))
          }
        }
      }
    }
    return items.sorted { PathText.precedes($0.relative, $1.relative) }
  }

  static func makeDirectory(_ path: String, permissions: UInt16) throws {
    guard mkdir(path, mode_t(permissions & NativePermissions.mask) | 0o700) == 0 else {
      throw CommandError.native("mkdir", path, errno)
    }
  }

  static func setModified(_ path: String, _ nanoseconds: Int64) throws {
    let parts = NativeTime.parts(nanoseconds)
    let time = timespec(tv_sec: parts.seconds, tv_nsec: parts.nanoseconds)
    guard utimensat(AT_FDCWD, path, [time, time], 0) == 0 else {
      throw CommandError.native("utimensat", path, errno)
    }
  }

  private static func status(_ path: String) throws -> stat {
    var status = stat()
    guard stat(path, &status) == 0 else { throw CommandError.native("stat", path, errno) }
    return status
  }

  private static func names(in directory: String) throws -> [String] {
    guard let stream = opendir(directory) else { throw CommandError.native("opendir", directory, errno) }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0  // only by this does readdir(3) tell a failure from the end
      guard let entry = readdir(stream) else {
        let code = errno
        if code != 0 { throw CommandError.native("readdir", directory, code) }
        return names
      }
      let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard let name = String(validating: bytes, as: UTF8.self) else {
        throw ContainerError(
          .cannotStore, nativePath: PathText.joined(directory, String(decoding: bytes, as: UTF8.self)),
          detail: "its name is not UTF-8")
      }
      if name != ".", name != ".." { names.append(name) }
    }
  }
}

extension CopyItem {
  fileprivate init(_ relative: String, _ status: stat) {
    let kind: FileKind =
      switch status.st_mode & S_IFMT {
      case S_IFDIR: .directory
      case S_IFLNK: .symbolicLink
      default: .file
      }
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    let modified = NativeTime.nanoseconds(seconds: time.tv_sec, nanoseconds: time.tv_nsec)
    self.init(
      relative: relative, kind: kind, size: kind == .file ? UInt64(status.st_size) : 0,
      permissions: UInt16(status.st_mode & 0o7777), created: nil, modified: modified)
  }
}
