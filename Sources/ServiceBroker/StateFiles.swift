import CPosix
package import Foundation
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Files that are replaced as a whole, in a directory that is for this user only.
package enum StateFiles {
  /// The directory and those above it, with access for this user only. Throws `SocketError` when it is open to others.
  static func makeDirectory(_ path: String) throws {
    var made = path.hasPrefix("/") ? "" : "."
    for part in path.split(separator: "/") {
      made += "/" + part
      guard mkdir(made, 0o700) == 0 || errno == EEXIST || access(made, F_OK) == 0 else {
        throw ServiceBrokerError.callFailed(operation: "mkdir", path: made, errno: errno)
      }
    }
    try SocketDirectory.check(path, .closedToOthers)
  }

  /// Returns nil if there is no such file. Throws if the file is longer than `byteCountMax`, and `stateDamaged` if it is not a
  /// regular file, such as a pipe.
  static func read(_ path: String, byteCountMax: Int) throws(ServiceBrokerError) -> Data? {
    // Without O_NONBLOCK, open(2) of a pipe waits for its other end.
    let number = cposix_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
    if number == -ENOENT { return nil }
    try check(number, "open", path)
    defer { close(number) }
    var status = stat()
    guard fstat(number, &status) == 0 else { throw .callFailed(operation: "fstat", path: path, errno: errno) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .stateDamaged(path: path) }
    var bytes = Data()
    var part = [UInt8](repeating: 0, count: min(byteCountMax + 1, 16 << 10))
    while bytes.count <= byteCountMax {
      let step = part.withUnsafeMutableBytes { Foundation.read(number, $0.baseAddress!, $0.count) }
      if step < 0, errno == EINTR { continue }
      if step < 0 { throw .callFailed(operation: "read", path: path, errno: errno) }
      if step == 0 { return bytes }
      bytes += part[..<step]
    }
    throw .callFailed(operation: "read", path: path, errno: EFBIG)
  }

  /// Replaces the file durably: a reader finds the old or the new bytes, whole, also after a power cut. `temporary` is a path of the
  /// same file system.
  package static func write(_ bytes: Data, _ path: String, temporary: String) throws(ServiceBrokerError) {
    unlink(temporary)
    let number = cposix_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    try check(number, "open", temporary)
    var rest = bytes[...]
    while !rest.isEmpty {
      let step = rest.withUnsafeBytes { Foundation.write(number, $0.baseAddress!, $0.count) }
      if step < 0, errno == EINTR { continue }
      guard step >= 0 else {
        let code = errno
        close(number)
        unlink(temporary)
        throw .callFailed(operation: "write", path: temporary, errno: code)
      }
      rest = rest.dropFirst(step)
    }
    let status = fsync(number)
    let code = errno
    close(number)
    guard status == 0 else { throw .callFailed(operation: "fsync", path: temporary, errno: code) }
    guard rename(temporary, path) == 0 else {
      throw .callFailed(operation: "rename", path: path, errno: errno)
    }
    try syncNames(beside: path)
  }

  /// Removes the file durably. A path that is gone counts as done.
  static func remove(_ path: String) throws(ServiceBrokerError) {
    guard unlink(path) == 0 || errno == ENOENT else {
      throw .callFailed(operation: "unlink", path: path, errno: errno)
    }
    try syncNames(beside: path)
  }

  private static func syncNames(beside file: String) throws(ServiceBrokerError) {
    let path = SocketDirectory.directory(of: file)
    let number = cposix_open(path, O_RDONLY | O_NOFOLLOW, 0)
    try check(number, "open", path)
    defer { close(number) }
    // Not every file system syncs directories.
    guard fsync(number) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EOPNOTSUPP else {
      throw .callFailed(operation: "fsync", path: path, errno: errno)
    }
  }

  static func check(_ status: Int32, _ operation: String, _ path: String) throws(ServiceBrokerError) {
    if status < 0 { throw .callFailed(operation: operation, path: path, errno: -status) }
  }
}
