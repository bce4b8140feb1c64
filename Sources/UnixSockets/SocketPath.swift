import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The path of a socket in the file system.
public enum SocketPath {
  /// The most UTF-8 bytes of a path that another process can dial: 107 on Linux, 103 on Darwin. The system's field
  /// (`sun_path`) has one more, for the zero that C programs expect.
  public static let byteCountMax = cposix_unix_path_max()

  /// What is at a path.
  enum Kind: Equatable {
    case nothing, socket, other
    /// lstat(2) failed with this error number.
    case unknown(Int32)
  }

  /// Symbolic links count as `other`: bind(2) does not follow them.
  static func kind(of path: String) -> Kind {
    var status = stat()
    guard lstat(path, &status) == 0 else { return errno == ENOENT ? .nothing : .unknown(errno) }
    return status.st_mode & S_IFMT == S_IFSOCK ? .socket : .other
  }

  static func check(_ path: String) throws(SocketError) {
    guard path.utf8.count <= byteCountMax else {
      throw .pathTooLong(path: path, byteCountMax: byteCountMax)
    }
    // C would see the part before the zero; an empty path has a meaning of its own on Linux.
    guard !path.isEmpty, !path.utf8.contains(0) else {
      throw .callFailed(operation: "bind or connect", path: path, errno: EINVAL)
    }
  }
}
