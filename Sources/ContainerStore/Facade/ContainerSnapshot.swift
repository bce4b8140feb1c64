/// The state of a container at one moment, for reading. The state does not change with the
/// container as long as the snapshot is open; until then, the space of removed and replaced files
/// is not freed.
public final class ContainerSnapshot: ContainerReading {
  public let reader: ContainerReader

  init(_ store: Store) { reader = ContainerReader(store: store, writeBack: nil) }

  /// Releases the snapshot: every later call throws `closed`. A second call does nothing.
  public func close() throws { try store.close() }
}

extension ContainerReader {
  func snapshot() throws -> ContainerSnapshot {
    try store.requireOpen()
    if store.mode == .readWrite {
      if let failure = try writeBack?.run().values.first {
        throw store.translated(failure, path: store.place)
      }
      // The snapshot reads the journal, so pending records must be in it.
      try store.flush(durably: store.options.durability != .none)
    }
    return ContainerSnapshot(
      try openedStore(store.io.unfenced, from: store.opening, mode: .readOnly, options: store.options) {
        slot, pool in
        guard slot.containerID == store.id else {
          throw ContainerError(.notAContainer, path: store.place)
        }
        return try store.copyRootKey(in: pool)
      }.store)
  }
}
