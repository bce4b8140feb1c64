import EncryptedFile

/// The catalog as every caller sees it, and the changes that are not in the journal yet.
struct CatalogState {
  var snapshot: CatalogSnapshot
  var counters: CatalogCounters
  private(set) var slabCounters: [UInt32: SlabCounter]
  /// Stored bytes that files need.
  private(set) var liveByteCount: UInt64
  /// Bytes of slabs up to their last committed one.
  private var endByteCount: UInt64
  /// Slabs whose counters have changed since they were last put into `pending`.
  private var changedSlabs: Set<UInt32> = []
  /// Changes that are applied to `snapshot` and not yet in the journal.
  var pending = ChangeMap()
  var pendingByteCount = 0
  var pendingRemovals: [Extent] = []
  var flushIsScheduled = false
  var isClosed = false
  /// The failure after which nothing can be written any more.
  var failure: ContainerError?
  /// Runs that durable commits removed and that are not freed yet.
  var freeable = FreeableRuns()
  /// Whether the reserve was given up. Until there is room for it again, only changes that take no
  /// space are accepted.
  var diskIsFull = false
  /// A number that every change increases.
  var changeNumber: UInt64 = 0
  /// The time of the last change except maintenance, by the monotonic clock, in nanoseconds.
  private(set) var lastChange: Int64 = 0
  /// Bytes of slabs that no file needs, holes included.
  var deadByteCount: UInt64 { endByteCount - min(endByteCount, liveByteCount) }

  init(snapshot: CatalogSnapshot, counters: CatalogCounters, slabCounters: [UInt32: SlabCounter]) {
    self.snapshot = snapshot
    self.counters = counters
    self.slabCounters = slabCounters
    liveByteCount = slabCounters.values.reduce(0) { $0 + $1.liveByteCount }
    endByteCount = slabCounters.values.reduce(0) { $0 + $1.end }
  }

  /// Applies the changes, and updates the counters of ids and slabs. Of the removed runs, those in
  /// `stillNeeded` are not given back with the commit. Of the unpinned runs, `unneeded` are given
  /// back.
  mutating func apply(_ transaction: Transaction, stillNeeded: Set<Extent>, unneeded: [Extent]) {
    guard transaction.staged.count > 0 else { return }
    changeNumber += 1
    for extent in transaction.removed + transaction.unpinned.flatMap(\.extents) {
      let live = slabCounters[extent.slab]?.liveByteCount ?? 0
      let count = min(live, UInt64(extent.storedByteCount))
      slabCounters[extent.slab, default: SlabCounter()].liveByteCount -= count
      liveByteCount -= count
      changedSlabs.insert(extent.slab)
    }
    for extent in transaction.added {
      let count = UInt64(extent.storedByteCount)
      slabCounters[extent.slab, default: SlabCounter()].liveByteCount += count
      let end = slabCounters[extent.slab]!.end
      slabCounters[extent.slab]!.end = max(end, extent.offset + count)
      endByteCount += slabCounters[extent.slab]!.end - end
      liveByteCount += count
      changedSlabs.insert(extent.slab)
    }
    counters.nextFile = transaction.nextFile
    if !transaction.isMaintenance { lastChange = Clock.monotonicNanoseconds() }
    let staged = transaction.staged
    transaction.finish()
    snapshot.overlay.merge(staged)
    pending.merge(staged)
    staged.visit { pendingByteCount += $0.bytes.count + ($1?.count ?? 0) }
    pendingRemovals += transaction.removed.filter { stillNeeded.isEmpty || !stillNeeded.contains($0) }
    pendingRemovals += unneeded
  }

  private mutating func put(_ key: CatalogKey, _ value: [UInt8]?) {
    snapshot.overlay.put(key, value)
    pending.put(key, value)
    pendingByteCount += key.bytes.count + (value?.count ?? 0)
  }

  /// Takes the changes of the next commit, with the counters as they are now.
  mutating func takePending(nextSlab: UInt32) -> (changes: ChangeMap, removals: [Extent]) {
    settleCounters(nextSlab: nextSlab)
    defer {
      pending = ChangeMap()
      pendingByteCount = 0
      pendingRemovals = []
      flushIsScheduled = false
    }
    return (pending, pendingRemovals)
  }

  /// Adds the records of changed counters to the pending changes. Transactions do not do so
  /// themselves, since every change changes counters.
  mutating func settleCounters(nextSlab: UInt32) {
    guard !pending.isEmpty else { return }
    for slab in changedSlabs {
      let counter = slabCounters[slab]!
      if counter.liveByteCount == 0 {
        slabCounters[slab] = nil
        endByteCount -= counter.end
      }
      put(.slab(slab), counter.liveByteCount == 0 ? nil : counter.encoded)
    }
    changedSlabs = []
    counters.nextSlab = max(counters.nextSlab, nextSlab)
    put(.state, counters.encoded)
  }

  // MARK: Checkpoints

  /// Freezes the overlay, which is to be written to a table; later changes go to a new overlay.
  mutating func freeze() {
    snapshot.frozen = snapshot.overlay
    snapshot.overlay = ChangeMap()
  }

  /// Merges the frozen changes back into the overlay.
  mutating func thaw() {
    var changes = snapshot.frozen ?? ChangeMap()
    changes.merge(snapshot.overlay)
    snapshot.overlay = changes
    snapshot.frozen = nil
  }

  /// Completes a checkpoint: the first of these tables has the frozen changes.
  mutating func completeCheckpoint(_ tables: [TableFile]) {
    snapshot.tables = tables
    snapshot.frozen = nil
  }

  // MARK: Failure

  /// Stops accepting changes. Pending changes are never written, since they may build on lost ones.
  /// `readBack` is the state on the disk, if it can be read.
  mutating func fail(_ failure: ContainerError, showing readBack: CatalogSnapshot?) {
    self.failure = failure
    pending = ChangeMap()
    pendingByteCount = 0
    pendingRemovals = []
    freeable.removeAll()
    if let readBack { snapshot = readBack }
    changeNumber += 1
  }

  /// The container is closed: nothing of its catalog stays in memory, whoever still refers to the store.
  mutating func forget() {
    snapshot = CatalogSnapshot()
    pending = ChangeMap()
  }
}

extension CatalogSnapshot {
  func slabCounters() throws -> [UInt32: SlabCounter] {
    var counters: [UInt32: SlabCounter] = [:]
    for (key, value) in try records(.all(.slab)) {
      guard key.bytes.count == 5, let counter = try? SlabCounter(value) else {
        throw ContainerError(.catalogDamaged, detail: "a slab counter that cannot be")
      }
      counters[key.bytes.dropFirst().reduce(0) { $0 << 8 | UInt32($1) }] = counter
    }
    return counters
  }

  func catalogCounters() throws -> CatalogCounters {
    guard let bytes = try value(.state), let counters = try? CatalogCounters(bytes) else {
      throw ContainerError(.catalogDamaged, detail: "its state record is missing")
    }
    return counters
  }
}
