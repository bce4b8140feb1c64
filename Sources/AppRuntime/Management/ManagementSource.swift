import CPosix
public import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The location of a management file.
public struct ManagementSource: Sendable, Hashable {
  /// The file's path.
  public let path: String

  /// A file that may be missing.
  public init(path: String) { self.path = path }

  /// The whole file; nil when there is none. A link at the end of the path is not followed. Throws
  /// `managementRefused` for a file that cannot be read, is no regular file, or has more than
  /// `ManagementFile.byteCountMax` bytes.
  public func read() throws(AppRuntimeError) -> Data? {
    // Without O_NONBLOCK, open(2) of a pipe waits for its other end.
    let file = cposix_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
    if file == -ENOENT { return nil }
    if file < 0 { throw refusal(String(cString: strerror(-file))) }
    defer { close(file) }
    var status = stat()
    guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      throw refusal("it is no regular file")
    }
    var bytes = Data()
    var part = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count <= ManagementFile.byteCountMax {
      let step = Foundation.read(file, &part, part.count)
      if step < 0, errno == EINTR { continue }
      if step < 0 { throw refusal(String(cString: strerror(errno))) }
      if step == 0 { return bytes }
      bytes += part[..<step]
    }
    throw refusal("it has more than \(ManagementFile.byteCountMax) bytes")
  }

  private func refusal(_ detail: String) -> AppRuntimeError {
    AppRuntimeError(.managementRefused, path: path, detail: detail)
  }

  /// The first file or directory that somebody other than root could replace, which makes the file advice to its reader;
  /// nil when there is none, and the file binds the person. Directories of the path as it is written count, and those that
  /// links in it lead to.
  public var replaceable: String? {
    guard let file = realpath(path, nil) else { return path }
    defer { free(file) }
    let places =
      Self.directories(of: Self.absolute(path)) + [path] + Self.directories(of: String(cString: file))
    return places.first { !Self.isOfRoot($0) }
  }

  private static func absolute(_ path: String) -> String {
    path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
  }

  /// `/`, `/a` and `/a/b` of `/a/b/c`.
  private static func directories(of path: String) -> [String] {
    let parts = path.split(separator: "/").dropLast()
    return parts.indices.reduce(into: ["/"]) { $0.append("/" + parts[...$1].joined(separator: "/")) }
  }

  private static func isOfRoot(_ path: String) -> Bool {
    var status = stat()
    guard lstat(path, &status) == 0, status.st_uid == 0 else { return false }
    // A link cannot be written, and has all permissions. An access control list that lets others write shows in
    // the group's.
    return status.st_mode & S_IFMT == S_IFLNK || status.st_mode & 0o022 == 0
  }
}
