import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

// Space: freeing what no reader needs, removing files that no state needs, and the reserve.

extension Store {
  // MARK: Freeing

  /// Frees the runs that durable commits removed and no reader needs, here or in another process.
  func freeWhatNobodyReads() {
    let isPinned = { (commit: UInt64) in (try? self.lockFile.isLocked(.pins(below: commit))) ?? true }
    // Runs that readers keep stay in the list, where a call after the last reader's end finds them.
    // Most often readers keep all: then one system call suffices, however many runs there are.
    guard let first = catalogState.withLock({ $0.freeable.firstCommit }), !isPinned(first) else { return }
    let commits = catalogState.withLock { $0.freeable.unreadCommits() }
    // A reader that needs the runs that one commit removed needs those of all later commits.
    var low = 0
    var high = commits.count
    while low < high {
      let middle = (low + high) / 2
      if isPinned(commits[middle]) { high = middle } else { low = middle + 1 }
    }
    guard low > 0 else { return }
    let commit = commits[low - 1]
    let free = catalogState.withLock { catalog -> [Extent]? in
      guard let free = catalog.freeable.take(through: commit) else { return nil }
      freesUnderWay.enter()
      return free
    }
    guard let free else { return }
    slabs.free(free)
    freesUnderWay.leave()
    retakeReserve()
  }

  /// Frees in the background: giving space back takes a system call for each run, and neither a
  /// small read nor a write-back waits for these calls.
  func freeSoon() {
    freeing.async { [weak self] in
      guard let self else { return }
      catalogState.withLock { $0.freeable.isScheduled = false }
      freeWhatNobodyReads()
    }
  }

  /// Makes every change durable, and waits until all threads have freed what no reader needs.
  func settleSpace() throws {
    try flush(durably: true)
    freesUnderWay.wait()
  }

  /// Removes journals, tables and slabs that no state of the container needs, unless a reader may
  /// need them.
  func removeUnreferenced(_ log: borrowing CommitLog) {
    guard (try? lockFile.isLocked(.pins(below: log.commit + 1))) == false else { return }
    do { try log.superblock.withBody { try catalogFiles.removeUnreferenced($0, slabs: slabs) } } catch {
      return  // nothing depends on the removal
    }
    slabs.trim()
  }

  /// See ``Container/compact(control:)``.
  func compact(control: BulkControl) throws -> CompactionReceipt {
    try compactor.compact(self, control: control)
  }

  // MARK: Reserve

  /// The size of the reserve, proportional to the stored bytes and to the catalog: removing every
  /// file takes a commit of about a third of the catalog, in two copies, and half of the reserve is
  /// for that.
  private func reserveByteCount(_ log: borrowing CommitLog) -> UInt64 {
    let (live, tables) = catalogState.withLock { catalog in
      (catalog.liveByteCount, catalog.snapshot.tables.reduce(0) { $0 + $1.table.byteCount })
    }
    let bounds = Reserve.byteCounts
    let byteCount = max(live / 256, (tables + log.journalByteCount) / 2 * 3, bounds.lowerBound)
    return min(byteCount, bounds.upperBound) / 4096 * 4096
  }

  /// Takes the reserve, or takes it back after it was given up.
  func takeReserve(_ log: inout CommitLog) {
    let isWhole = log.reserve.take(reserveByteCount(log))
    catalogState.withLock { $0.diskIsFull = isWhole == false }
  }

  /// Runs `body`, which takes a little space. When the disk is full, gives the reserve up, or the part
  /// of it that changes get which give nothing back, and runs `body` again.
  func usingReserve(
    _ log: inout CommitLog, givesBack: @autoclosure () -> Bool = true,
    _ body: (inout CommitLog) throws -> Void
  ) throws {
    do {
      try body(&log)
    } catch let failure as IOFailure where noSpace.contains(failure.errno) && log.reserve.isHeld {
      // From now on only what gives space back is accepted.
      catalogState.withLock { $0.diskIsFull = true }
      if givesBack() { try log.reserve.giveUp() } else { try log.reserve.lend(wanted: reserveByteCount(log)) }
      try body(&log)
    }
  }

  /// Takes the reserve back. Called after space was freed, and before a change is refused; at the end
  /// of closing, also when it has become too large.
  func retakeReserve(atClosing: Bool = false) {
    guard atClosing || catalogState.withLock({ $0.diskIsFull }) else { return }
    commitLog.withLock { log in
      let isWrong =
        catalogState.withLock { $0.diskIsFull } || log.reserve.byteCount > 2 * reserveByteCount(log)
      if isWrong, atClosing || !log.isClosed { takeReserve(&log) }
    }
  }
}

extension ChangeMap {
  /// Whether the changes remove more than they add: what they take on the disk is less than what a
  /// compaction gives back for them.
  var givesBack: Bool {
    var givesBack = false
    var nameCount = 0
    visit { key, value in
      if key.kind == .entry { nameCount += value == nil ? -1 : 1 } else if value == nil { givesBack = true }
    }
    return givesBack || nameCount < 0
  }
}
