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
    do throws(IOFailure) { (byteCount, freeByteCount) = try store.io.space() } catch {
      throw ContainerError.from(error).with(path: store.io.place)
    }
    usedFileCount = store.usedFileCount
    fileCountMax = CatalogCounters.fileCountMax
  }
}
