/// A catalog that a repair has made, in the place of that which the superblock of this number names.
struct SalvagedCatalog {
  var catalog: ChangeMap
  var update: UInt64
}

extension CatalogLoader {
  /// Loads the catalog, pins the commit that a reader has read, and checks for signs of a later
  /// state than that of the superblock's `update`.
  func load(
    _ mode: ContainerMode, _ update: UInt64, lockFile: any BlockFile, acceptsOlderState: Bool
  ) throws -> LoadedCatalog {
    // Without the journals and tables of the older state, too, it is the superblock that is wrong.
    let loaded = Result { try load() }
    if mode == .readOnly {
      if case .success(let loaded) = loaded { try ContainerLock.pin(loaded.commit, lockFile) }
      // Commits that a living writer adds are later, but no such sign.
      if try lockFile.isLocked(.writer) { return try loaded.get() }
    }
    guard try hasLaterState(than: update) else { return try loaded.get() }
    guard acceptsOlderState else { throw ContainerError(.rolledBack) }
    log.add(Finding(.damage, .rolledBack, ContainerError.Code.rolledBack.what))
    return try loaded.get()
  }
}

extension CatalogSnapshot {
  /// Why nothing of one of its tables can be had.
  var loss: (any Error)? { tables.lazy.compactMap(\.loss).first }

  /// The counters, which only a writer needs: without them a reader can read everything else.
  func counters(
    _ mode: ContainerMode, _ log: FindingLog
  ) throws -> (CatalogCounters, [UInt32: SlabCounter]) {
    func read<R>(_ body: () throws -> R, else substitute: R) throws -> R {
      do { return try body() } catch  where mode == .readOnly && TableFile.isLoss(error) {
        log.add(TableFile.finding(error))
      } catch let error as ContainerError where mode == .readOnly && error.code == .catalogDamaged {
        log.add(Finding(.damage, .catalogInconsistent, error.detail ?? ""))
      }
      return substitute
    }
    if mode == .readWrite, let loss { throw loss }
    let unknown = CatalogCounters(nextFile: CatalogCounters.nextFileMax, nextSlab: 0)
    return (try read(catalogCounters, else: unknown), try read(slabCounters, else: [:]))
  }
}
