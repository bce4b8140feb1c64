import Dispatch
import SodiumPrimitives

/// The two ends of an opening: in good order, and at once.
struct Closing: Sendable {
  let store: Store

  /// See ``Store/close()``. With the lock of ``Store/closing``.
  func close() throws {
    // One that is sealed is being closed already.
    if store.keyPool.isShut { return }
    OpenStores.shared.begins(toEnd: store)
    if store.mode == .readWrite, !store.isClosed { store.compactor.stop(compactingForClose: store) }
    let wasClosed = store.catalogState.withLock { catalog in
      defer { catalog.isClosed = true }
      return catalog.isClosed
    }
    guard !wasClosed else { return }
    defer { end() }
    guard store.mode == .readWrite else { return }
    // A commit under way may have begun a checkpoint; no checkpoint begins from here on.
    store.commitLog.withLock { _ in }
    store.backgroundWork.wait()
    store.compactor.wait()
    try store.commitLog.withLock { log in
      defer { log.isClosed = true }
      if let failure = store.catalogState.withLock({ $0.failure }) { throw failure }
      try store.failing(&log) { try writeEnd(&$0) }
    }
    store.freeWhatNobodyReads()
    store.retakeReserve(atClosing: true)
  }

  /// Nothing of this opening may reach the disk once another one can have the lock.
  private func end() {
    store.openRuns.close()
    store.fence.shut()
    store.fence.wait()
    store.workers.threads.stop()
    store.keyPool.shut()
    store.workers.removeAll()
    store.catalogFiles.forgetAll()
    store.lockFile.unlock(LockRange(offset: 0, count: 0))
    OpenStores.shared.remove(store)
  }

  /// Closes at once, in the middle of whatever is under way: when this returns, the keys are wiped, and nothing begins any more that
  /// changes the files. What had begun is waited for elsewhere, and the lock is held until then. On the disk it is as
  /// after the end of the process. Does nothing after ``close()``.
  func seal(because reason: String?) {
    let isFirst = store.closeReason.withLock { known in
      guard !store.keyPool.isShut else { return false }
      known = reason
      return true
    }
    OpenStores.shared.begins(toEnd: store)
    // In this order: a change that is refused is one of a closed container.
    store.keyPool.shut()
    store.fence.shut()
    for pool in store.dependents.withLock({ $0 }) { pool.shut() }
    guard isFirst else { return }
    DispatchQueue(label: "ending").async { [self] in
      store.closing.withLock { _ in
        let wasClosed = store.catalogState.withLock { catalog in
          defer { catalog.isClosed = true }
          return catalog.isClosed
        }
        guard !wasClosed else { return }
        store.compactor.stop()
        store.backgroundWork.wait()
        store.compactor.wait()
        store.commitLog.withLock { $0.isClosed = true }
        end()
      }
      store.observers.finish()
    }
  }

  /// Commits the pending changes, and names the journal's end, or tables in its place, in the
  /// superblock.
  private func writeEnd(_ log: inout CommitLog) throws {
    let durably = store.options.durability != .none
    try store.commitPending(&log, durably: durably)
    if log.mergesAllTables { return try store.checkpoints.rewriteCatalog(&log) }
    guard durably, let journal = log.journal else { return }
    if log.frozenCommit == nil, try store.checkpoints.writeFinal(&log) { return }
    try journal.synchronizeBoth()
    try log.superblock.update { body in
      body.isClean = true
      body.journal?.knownEnd = journal.knownEnd
    }
  }
}
