/// Access to the stored data of a container or a snapshot, without an interface of its own: see
/// ``ContainerReading``.
public struct ContainerReader: Sendable {
  let store: Store
  /// The write-back of open files; nil for a snapshot, which has none.
  let writeBack: WriteBack?

  /// Calls `body` with the current catalog. For a container that is open for writing, bytes written
  /// through open files are stored first.
  func withWrittenBackSnapshot<R>(settled: Bool = false, _ body: (CatalogSnapshot) throws -> R) throws -> R {
    guard let writeBack else { return try store.withSnapshot(settled: settled, body) }
    return try writeBack.withWrittenBackSnapshot(settled: settled, body)
  }

  /// Calls `body` with the current catalog, and adds `path` to errors.
  func withWrittenBackSnapshot<R>(naming path: StorePath, _ body: (CatalogSnapshot) throws -> R) throws -> R {
    try store.namingPath(path.text) { try withWrittenBackSnapshot(body) }
  }
}
