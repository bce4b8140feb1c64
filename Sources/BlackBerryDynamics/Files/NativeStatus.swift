#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The status of a native item, as the system states it: stat(2). The size is reported, and shows
/// whether the item was changed; nothing is read or reserved by it.
struct NativeStatus: Sendable, Equatable {
  struct Identity: Sendable, Hashable {
    let device: UInt64
    let inode: UInt64
  }

  enum Kind: Sendable {
    case file, directory
  }

  let identity: Identity
  private let mode: UInt32
  private let owner: UInt32
  let size: Int64
  /// Dates of the contents and of the status, in seconds and nanoseconds.
  private let dates: [Int64]

  private init(_ status: stat) {
    identity = Identity(
      device: UInt64(truncatingIfNeeded: status.st_dev), inode: UInt64(truncatingIfNeeded: status.st_ino))
    mode = UInt32(status.st_mode)
    owner = UInt32(status.st_uid)
    size = Int64(status.st_size)
    #if canImport(Darwin)
      let (modified, changed) = (status.st_mtimespec, status.st_ctimespec)
    #else
      let (modified, changed) = (status.st_mtim, status.st_ctim)
    #endif
    dates = [
      Int64(modified.tv_sec), Int64(modified.tv_nsec), Int64(changed.tv_sec), Int64(changed.tv_nsec),
    ]
  }

  /// Follows links. Nil when the system does not tell, as for the next two.
  init?(path: String) {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    self.init(status)
  }

  init?(descriptor: Int32) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return nil }
    self.init(status)
  }

  /// Does not follow a link.
  init?(name: String, in directory: Int32) {
    var status = stat()
    guard fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
    self.init(status)
  }

  /// Nil for links, pipes, sockets and devices.
  var kind: Kind? {
    switch mode & UInt32(S_IFMT) {
    case UInt32(S_IFREG): .file
    case UInt32(S_IFDIR): .directory
    default: nil
    }
  }

  /// The owner is the user of this process, or root.
  var isTrusted: Bool { owner == 0 || owner == geteuid() }

  var isWritableByOthers: Bool { mode & 0o002 != 0 }
}
