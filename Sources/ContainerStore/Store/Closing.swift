import Dispatch
import SodiumPrimitives

/// The two ends of an opening: in good order, and at once.
struct Closing: Sendable {
  let store: Store

  /// See ``Store/close()``. With the lock of ``Store/closing``.
  func close() throws {
    // One that is sealed is being closed already.
    if store.keyPool.isShut { return }
    Openings.shared.begins(toEnd: store.opening)
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

  /// Ends everything that was not ended before.
  func end() {
    store.keyPool.shut()
    store.opening.fence.shut()
    becomeQuiet()
    endMemory()
  }

  /// Waits for changes that are under way, and only then gives the lock back: another opening may write from there on.
  private func becomeQuiet() {
    store.opening.fence.wait()
    store.lockFile.unlock(LockRange(offset: 0, count: 0))
    Openings.shared.remove(store.opening)
  }

  /// Wipes what was opened, and ends streams of changes. It does not wait for the disk, but for units that are read ahead.
  private func forget() {
    store.observers.finish()
    store.workers.removeAll()
    store.catalogFiles.forgetAll()
    store.openRuns.close()
  }

  /// Ends an opening whose keys are gone, in the middle of whatever is under way. What has begun to be written is waited for elsewhere, and the lock
  /// is held until then. On the disk it is as after the end of the process. Does nothing after ``close()``.
  func endSealed() {
    DispatchQueue(label: "becoming quiet").async { becomeQuiet() }
    DispatchQueue(label: "ending").async { [self] in
      forget()
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
        endMemory()
      }
    }
  }

  /// Threads that were under way have put back what they had when they are stopped.
  private func endMemory() {
    store.workers.threads.stop()
    forget()
    store.catalogState.withLock { $0.forget() }
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
