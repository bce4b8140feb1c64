import EncryptedFile

/// The catalog as every caller sees it, and what of it is not in the journal yet.
struct CatalogState {
  var snapshot: CatalogSnapshot
  var counters: CatalogCounters
  private(set) var slabCounters: [UInt32: SlabCounter]
  /// Stored bytes that files need.
  private(set) var liveByteCount: UInt64
  /// Bytes of slabs up to their last committed one.
  private var endByteCount: UInt64
  /// Slabs whose counters have changed since they were last in `pending`.
  private var changedSlabs: Set<UInt32> = []
  /// Applied to `snapshot`, not yet in the journal.
  var pending = ChangeMap()
  var pendingByteCount = 0
  var pendingRemovals: [Extent] = []
  var flushIsScheduled = false
  var isClosed = false
  /// Why nothing can be written any more.
  var failure: ContainerError?
  /// Removed by durable commits; freed when no reader that began before is left.
  var freeable: [(ticket: UInt64, commit: UInt64, extents: [Extent])] = []
  var nextTicket: UInt64 = 0
  var freeingIsScheduled = false
  /// A commit stands in the journal whose segments recovery would check: they must stay until a checkpoint.
  var freeingIsHeld = false
  var readers: [UInt64: Int] = [:]
  /// The reserve was given up: only changes that take no space are accepted until there is room for it again.
  var diskIsFull = false
  /// Changes with every change.
  var changeNumber: UInt64 = 0
  /// When somebody last changed something, by the monotonic clock.
  private(set) var lastChange: Int64 = 0
  var compactionIsScheduled = false
  var deadByteCountAfterCompaction: UInt64 = 0
  /// Bytes of slabs that no file needs, holes included.
  var deadByteCount: UInt64 { endByteCount - min(endByteCount, liveByteCount) }

  init(snapshot: CatalogSnapshot, counters: CatalogCounters, slabCounters: [UInt32: SlabCounter]) {
    self.snapshot = snapshot
    self.counters = counters
    self.slabCounters = slabCounters
    liveByteCount = slabCounters.values.reduce(0) { $0 + $1.liveByteCount }
    endByteCount = slabCounters.values.reduce(0) { $0 + $1.end }
  }

  /// Applies the changes and keeps the books of ids and slabs. What is still needed of what was removed is not given back with the
  /// commit; `unneeded` is what is given back of what was unpinned.
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

  /// What the next commit holds, with the counters as they are now.
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

  /// Puts counters that have changed among the records: not with each change, since they change with each.
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

  /// From now on changes gather in a new overlay, and those before wait to be written to a table.
  mutating func freeze() {
    snapshot.frozen = snapshot.overlay
    snapshot.overlay = ChangeMap()
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
