#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The space of the file system that holds a container, and the number of the container's files.
public struct ContainerStatistics: Sendable {
  /// The size of the file system in bytes.
  public var byteCount: UInt64
  /// The bytes that are free for this process.
  public var freeByteCount: UInt64
  /// The number of ids that were given to files; no id is given twice.
  public var usedFileCount: UInt64
  /// The total number of ids.
  public var fileCountMax: UInt64
}

extension ContainerStatistics {
  init(_ store: Store) throws {
    var system = statvfs()
    guard statvfs(store.io.place, &system) == 0 else {
      throw ContainerError.from(IOFailure("statvfs", "the container", errno: errno))
        .with(path: store.io.place)
    }
    byteCount = UInt64(system.f_blocks) * UInt64(system.f_frsize)
    freeByteCount = UInt64(system.f_bavail) * UInt64(system.f_frsize)
    usedFileCount = store.usedFileCount
    fileCountMax = CatalogCounters.fileCountMax
  }
}
