import EncryptedFile

/// The store's interface to open files, which continue to read runs that the catalog has given up.
/// Every call is within a transaction, with the catalog's lock held.
protocol RunHolding: Sendable {
  /// Reports that files lose their last names. Returns the extents that open handles still need.
  func remove(_ files: [Transaction.DroppedFile]) -> Set<Extent>
  /// Reports that runs of removed files lose their last pins. Returns the extents that no handle
  /// needs.
  func unpin(_ files: [Transaction.UnpinnedRuns]) -> [Extent]
  /// Reports that a run of a file has been given other offsets.
  func move(_ old: Extent, of file: UInt64, to runs: [Extent])
  /// The store is closed, without a lock held: no file is opened any more, and handles accept no changes. Returns the paths of files with
  /// changes that are not stored.
  func endOpenings() -> [String]
  /// The same, and nothing that was written or opened stays in memory.
  func close()
}

/// Observers of commits.
protocol CommitObserving: Sendable {
  /// Reports that a transaction is about to be applied and can no longer fail. Called with the
  /// catalog's lock held.
  func note(_ transaction: Transaction)
  /// Reports that the catalog was read anew from the disk and no longer follows from the commits.
  /// Called with the catalog's lock held.
  func lose()
  /// Requests delivery of the noted transactions. Called without a lock.
  func wake()
  /// Reports that the container is closed.
  func finish()
}
