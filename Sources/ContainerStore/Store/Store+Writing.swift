import Dispatch
import EncryptedFile
import SodiumPrimitives

/// The identity of a new file, before its contents are stored.
struct NewFile: Sendable {
  var id: UInt64
  var secret: [UInt8]
}

extension Store {
  private static let pendingByteCountMax = 4 << 20

  // MARK: Changes

  /// Runs `body` on the catalog and makes its changes visible together, or none of them when it
  /// throws. In that case `stored`, the runs that were appended for this change, are given back.
  /// `durability` overrides that of the container for this change.
  func transaction<R>(
    storing stored: [Extent] = [], durability: ContainerDurability? = nil, _ body: (Transaction) throws -> R
  ) throws -> R {
    retakeReserve()
    let result: R
    do {
      result = try reportingIO { try apply(body, addsSegments: !stored.isEmpty) }
    } catch {
      slabs.discard(stored)
      throw error
    }
    observers.wake()
    // Nothing is given back from here on: when writing the journal fails, the disk may have the
    // commit nevertheless.
    switch durability ?? options.durability {
    case .full: try flush(durably: true)
    case .grouped: try flushSoon()
    case .none: if pendingIsLarge { try flush(durably: commitLog.withLock { checkpoints.isDue($0) }) }
    }
    return result
  }

  private func apply<R>(_ body: (Transaction) throws -> R, addsSegments: Bool) throws -> R {
    try catalogState.withLock { catalog -> R in
      guard !keyPool.isShut, !catalog.isClosed else { throw closed }
      guard mode == .readWrite else { throw ContainerError(.readOnly) }
      if let failure = catalog.failure { throw Self.readOnly(after: failure) }
      guard catalog.counters.nextFile < CatalogCounters.nextFileMax else {
        throw ContainerError(
          .cannotStore, detail: "there is no further id for a file: make another container")
      }
      let transaction = Transaction(
        base: catalog.snapshot, epoch: epoch, nextFile: catalog.counters.nextFile)
      let result = try body(transaction)
      if catalog.diskIsFull, !transaction.fitsFullDisk(addsSegments) { throw ContainerError(.diskFull) }
      observers.note(transaction)
      transaction.runWhenApplied()
      for move in transaction.moved { openRuns.move(move.old, of: move.file, to: move.runs) }
      catalog.apply(
        transaction, stillNeeded: openRuns.remove(transaction.dropped),
        unneeded: openRuns.unpin(transaction.unpinned))
      slabs.settle(transaction.added)
      return result
    }
  }

  /// Takes so many ids for new files and returns the first. No id is ever given twice.
  func takeFileIDs(_ count: Int) -> UInt64 {
    catalogState.withLock { catalog in
      defer { catalog.counters.nextFile += UInt64(count) }
      return catalog.counters.nextFile
    }
  }

  func newFile() -> NewFile {
    NewFile(id: takeFileIDs(1), secret: Random.bytes(Inode.secretByteCount))
  }

  /// Gives back runs that a commit removed while open files still needed them.
  func release(_ extents: [Extent]) {
    guard !extents.isEmpty else { return }
    commitLog.withLock { log in
      catalogState.withLock { catalog in
        // No commit is under way: the commit that removed the extents is either pending as a whole
        // or in the journal.
        if !catalog.pending.isEmpty {
          catalog.pendingRemovals += extents
        } else if catalog.failure == nil, !catalog.isClosed {
          catalog.freeable.append(extents, removedBy: log.commit)
        }
      }
    }
    freeWhatNobodyReads()
  }

  // MARK: Durability

  /// Durability for a change that no caller waits for.
  var soon: ContainerDurability { options.durability == .full ? .grouped : options.durability }

  /// Durability for a change that is acknowledged to another app. The change is on the disk before
  /// that, unless the container's durability is `none`.
  var acknowledged: ContainerDurability? { options.durability == .none ? nil : .full }

  /// Writes the pending changes to the journal; with `durably` they are on the disk when this
  /// returns.
  func flush(durably: Bool) throws {
    try commitLog.withLock { log in
      if log.isClosed { throw closed }
      try requireNoFailure()
      try failing(&log) { try commitPending(&$0, durably: durably) }
    }
    freeWhatNobodyReads()
    if durably { compactor.startWhenDue(in: self) }
  }

  private func flushSoon() throws {
    if pendingIsLarge {
      try flush(durably: true)
      return
    }
    let mustSchedule = catalogState.withLock { catalog in
      defer { catalog.flushIsScheduled = true }
      return !catalog.flushIsScheduled
    }
    guard mustSchedule else { return }
    grouping.asyncAfter(deadline: .now() + .milliseconds(Self.groupDelayMilliseconds)) { [weak self] in
      // A failure makes the container read-only, and the next call reports it.
      try? self?.flush(durably: true)
    }
  }

  private static let groupDelayMilliseconds = 50

  private var pendingIsLarge: Bool {
    catalogState.withLock { $0.pendingByteCount > Self.pendingByteCountMax }
  }

  /// Makes appended segments durable, while commits continue.
  func synchronizeSegments() throws {
    do { try slabs.synchronize() } catch {
      try commitLog.withLock { log in try failing(&log) { _ in throw error } }
    }
  }

  /// Makes appended segments, and the commits that name them, durable in the background.
  func synchronizeSoon() {
    guard options.durability != .none else { return }
    inBackground(synchronizing, backgroundWork) { store in
      // A failure makes the container read-only, and the next call reports it.
      guard (try? store.synchronizeSegments()) != nil else { return }
      try? store.flush(durably: true)
    }
  }
}
