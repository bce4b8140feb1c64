import CPosix
import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file, directory or symbolic link of the native file system to import. There may be millions of
/// items, so an item stores neither its path nor an array that could be empty.
struct NativeItem: Sendable {
  /// Index of the parent directory; 0 for the top.
  let parent: UInt32
  /// The item's name; nil for the top.
  let name: FileName?
  let kind: FileKind
  let permissions: UInt16
  let size: UInt64
  let modified: Int64
  /// Device and inode number, which identify the file.
  private let device: UInt64
  private let number: UInt64
  /// The target of a symbolic link.
  var target: [UInt8]?

  init(parent: Int, name: FileName?, status: stat) {
    self.parent = UInt32(parent)
    self.name = name
    kind =
      switch status.st_mode & S_IFMT {
      case S_IFDIR: .directory
      case S_IFLNK: .symbolicLink
      default: .file
      }
    size = UInt64(status.st_size)
    permissions = UInt16(status.st_mode & 0o7777)
    modified = NativeTime.modified(status)
    device = UInt64(status.st_dev)
    number = UInt64(status.st_ino)
  }

  /// Whether `status` is that of the same file in the same state.
  func isUnchanged(_ status: stat) -> Bool {
    size == UInt64(status.st_size) && modified == NativeTime.modified(status)
      && device == UInt64(status.st_dev) && number == UInt64(status.st_ino)
  }
}

extension NativeTime {
  static func modified(_ status: stat) -> Int64 {
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    return nanoseconds(seconds: time.tv_sec, nanoseconds: time.tv_nsec)
  }
}
