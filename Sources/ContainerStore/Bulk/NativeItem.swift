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
  /// Identifies the file.
  let identity: FileIdentity
  /// Whether the file takes less of the disk than it has bytes: it may have holes.
  let isSparse: Bool
  /// Whether the file has names elsewhere, perhaps in the same tree.
  let hasOtherNames: Bool
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
    identity = FileIdentity(status)
    isSparse = kind == .file && Int64(status.st_blocks) < Int64(status.st_size) / 512
    hasOtherNames = kind == .file && status.st_nlink > 1
  }

  /// Whether `status` is that of the same file in the same state.
  func isUnchanged(_ status: stat) -> Bool {
    size == UInt64(status.st_size) && modified == NativeTime.modified(status)
      && identity == FileIdentity(status)
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
