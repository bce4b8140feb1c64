extension CatalogLoader {
  /// Loads the catalog, pins the commit that a reader has read, and checks for signs of a later
  /// state than that of the superblock's `update`.
  func load(
    _ mode: ContainerMode, _ update: UInt64, lockFile: any BlockFile, acceptsOlderState: Bool
  ) throws -> LoadedCatalog {
    let loaded = try load()
    if mode == .readOnly {
      try ContainerLock.pin(loaded.commit, lockFile)
      // Commits that a living writer adds are later, but no such sign.
      if try lockFile.isLocked(.writer) { return loaded }
    }
    // Commits that a repair gives up are later, too, but no such sign.
    guard !log.findings.contains(where: { $0.kind == .journalDamaged }),
      try hasLaterState(than: update, loaded)
    else { return loaded }
    guard acceptsOlderState else { throw ContainerError(.rolledBack) }
    log.add(Finding(.damage, .rolledBack, ContainerError.Code.rolledBack.what))
    return loaded
  }
}

extension CatalogSnapshot {
  /// The counters, which only a writer needs: without them a reader can read everything else.
  func counters(
    _ mode: ContainerMode, _ log: FindingLog
  ) throws -> (CatalogCounters, [UInt32: SlabCounter]) {
    do {
      return (try catalogCounters(), try slabCounters())
    } catch  where mode == .readOnly && TableFile.isLoss(error) {
      log.add(TableFile.finding(error))
      return (CatalogCounters(nextFile: CatalogCounters.nextFileMax, nextSlab: 0), [:])
    } catch let error as ContainerError where mode == .readOnly && error.code == .catalogDamaged {
      log.add(Finding(.damage, .catalogInconsistent, error.detail ?? ""))
      return (CatalogCounters(nextFile: CatalogCounters.nextFileMax, nextSlab: 0), [:])
    }
  }
}
