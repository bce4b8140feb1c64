import CPosix
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a native path leads to, symbolic links followed.
enum NativeKind {
  case missing
  case file
  case directory
  /// A pipe, terminal or device: read and written from end to end, never replaced.
  case stream

  init(at path: String) throws(CommandError) {
    var status = stat()
    guard stat(path, &status) == 0 else {
      guard errno == ENOENT else { throw CommandError.native("stat", path, errno) }
      self = .missing
      return
    }
    self =
      switch status.st_mode & S_IFMT {
      case S_IFREG: .file
      case S_IFDIR: .directory
      default: .stream
      }
  }
}

/// read(2), as much as there is; 0 at the end. Throws `cancelled` when a signal comes first.
func readSome(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, name: String) throws -> Int {
  while true {
    try waitForInput(descriptor)
    let count = read(descriptor, buffer.baseAddress!, buffer.count)
    if count >= 0 { return count }
    guard errno == EINTR || errno == EAGAIN else { throw CommandError.native("read", name, errno) }
  }
}
