internal import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif
/// An exclusive lock on a file, until it is released or the process ends.
final class FileLock: Sendable {
  private let descriptor: Guarded<CInt?>

  /// Makes the file if there is none. Returns nil when another process, or another lock of this one, has it.
  init?(path: String) throws {
    let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else {
      throw StoreFailure(description: "\(path) cannot be opened: \(String(cString: strerror(errno)))")
    }
    self.descriptor = Guarded(descriptor)
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { return nil }
  }

  func release() {
    descriptor.withLock { descriptor in
      if let descriptor { close(descriptor) }
      descriptor = nil
    }
  }

  deinit {
    release()
  }
}
