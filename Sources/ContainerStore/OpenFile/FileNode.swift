import EncryptedFile
import Locks
import SodiumPrimitives

/// The state that all handles of one open file share: its size, its extents, and bytes that were
/// written and not stored yet.
///
/// Lock order, outermost first: the write-back lock (`OpenFiles.writing`), the catalog's lock, the
/// lock of `OpenFiles`, a node's lock. Nothing is read, sealed or stored with a node's lock held.
final class FileNode: Sendable {
  let id: UInt64
  /// As it was given when the file was opened.
  let path: String
  let key: FileKey
  let state: Guarded<State>
  /// Held by appends, so that no append writes between the pieces of a long one.
  let appending = Guarded(OneAtATime())
  private let tally: DirtyTally

  struct State {
    /// The size that the handles see.
    var size: UInt64
    /// Incremented with every change of the contents.
    var contentNumber: UInt64 = 0
    /// The catalog's inode; for a removed file, its last one.
    var inode: Inode
    /// The catalog's extents; nil if they have to be loaded.
    var map: ExtentMap?
    /// Incremented with every invalidation of `map`, so that extents loaded before one are not used
    /// after it.
    var mapVersion = 0
    /// The number of threads that are loading the extents from the catalog.
    var loaderCount = 0
    /// Runs that were moved since the first of these loads began.
    var movesWhileLoading: [(old: Extent, places: [Extent])] = []
    var dirty = DirtyLayer()
    /// The layer that is being sealed and stored; beneath `dirty`.
    var frozen: DirtyLayer?
    /// Not nil once the file was removed and has no inode any more: the extents that the catalog
    /// gave up then and that the handles have to give back.
    var removed: ExtentMap?
    /// Extents that pins kept when the file was removed. The handles give them back only if the
    /// handles are the last to need them.
    var pinned = ExtentMap()
    /// The last handle was closed.
    var isReleased = false
    /// The container was closed, and nothing of the file stays in memory.
    var isForgotten = false
    /// The number of reads of a removed file in progress.
    var readCount = 0
    /// Runs that were stored after the removal, are not needed, and may still be read.
    var garbage: [Extent] = []

    /// Whether it has changes that the catalog lacks.
    var isUnstored: Bool { dirty.isChanged || frozen != nil }
  }

  init(id: UInt64, path: String, inode: Inode, key: consuming FileKey, tally: DirtyTally) {
    self.id = id
    self.path = path
    self.key = key
    self.tally = tally
    state = Guarded(State(size: inode.size, inode: inode))
  }

  var size: UInt64 { state.withLock { $0.size } }
  var contentNumber: UInt64 { state.withLock { $0.contentNumber } }
  var isRemoved: Bool { state.withLock { $0.removed != nil } }

  /// The container was closed: what was written and not stored is dropped.
  func forget() {
    let layers = state.withLock { state in
      defer { (state.dirty, state.frozen, state.isForgotten) = (DirtyLayer(), nil, true) }
      return (state.dirty, state.frozen)
    }
    withExtendedLifetime(layers) {}
  }

  // MARK: Changing

  /// Writes at an offset, or at the end if it is nil, in one step for readers. Returns the offset.
  @discardableResult
  func write(_ bytes: UnsafeRawBufferPointer, at place: UInt64?) throws -> UInt64 {
    try state.withLock { state in
      let offset = place ?? state.size
      guard !state.isReleased else { throw ContainerError(.closed) }
      let (end, overflows) = offset.addingReportingOverflow(UInt64(bytes.count))
      guard !overflows, end < 1 << 62 else {
        throw ContainerError(.invalidArgument, detail: "a file has less than 2^62 bytes")
      }
      guard !bytes.isEmpty else { return offset }
      var done = 0
      while done < bytes.count {
        let position = Int((offset + UInt64(done)) % UInt64(DirtyGrain.byteCount))
        let count = min(bytes.count - done, DirtyGrain.byteCount - position)
        let index = DirtyLayer.grain(offset + UInt64(done))
        let grain = state.dirty.grains[index] ?? DirtyGrain(tally)
        if grain.valid.isEmpty { state.dirty.grains[index] = grain }
        grain.write(UnsafeRawBufferPointer(rebasing: bytes[done..<(done + count)]), at: position)
        done += count
      }
      state.size = max(state.size, end)
      noteChange(&state)
      return offset
    }
  }

  func truncate(to size: UInt64) throws {
    guard size < 1 << 62 else {
      throw ContainerError(.invalidArgument, detail: "a file has less than 2^62 bytes")
    }
    try state.withLock { state in
      guard !state.isReleased else { throw ContainerError(.closed) }
      guard size != state.size else { return }
      if size < state.size { state.dirty.truncate(to: size) }
      state.size = size
      noteChange(&state)
    }
  }

  private func noteChange(_ state: inout State) {
    state.contentNumber += 1
    state.dirty.modified = Clock.wallNanoseconds()
    guard !state.dirty.isChanged else { return }
    state.dirty.isChanged = true
    tally.fileCount.add(1, ordering: .acquiringAndReleasing)
  }

  // MARK: Writing back

  /// A set of changes to store, with the file's size at that time.
  struct Batch: Sendable {
    let node: FileNode
    let layer: DirtyLayer
    let size: UInt64
  }

  /// Moves the changes so far into a batch; nil if there are none. The caller must follow with
  /// ``finish(_:)`` or ``restore()``.
  func freeze() -> Batch? {
    state.withLock { state in
      guard state.dirty.isChanged else { return nil }
      precondition(state.frozen == nil, "one batch of a file at a time is written back")
      let layer = state.dirty
      state.frozen = layer
      state.dirty = DirtyLayer()
      return Batch(node: self, layer: layer, size: state.size)
    }
  }

  /// Ends a batch that was stored; `map` has the file's new extents.
  func finish(_ map: ExtentMap, _ inode: Inode? = nil) {
    state.withLock { state in
      state.map = map
      state.frozen = nil
      if let inode { state.inode = inode }
    }
    tally.fileCount.subtract(1, ordering: .acquiringAndReleasing)
  }

  /// Takes back a batch that was not stored, or may not have been: its bytes are dirty again.
  func restore(_ batch: Batch) {
    state.withLock { state in
      guard !state.isForgotten else { return }
      let counted = (state.dirty.isChanged ? 1 : 0) + (state.frozen == nil ? 0 : 1)
      tally.fileCount.add(1 - counted, ordering: .acquiringAndReleasing)
      state.dirty.lay(over: batch.layer)
      state.frozen = nil
      if state.removed == nil {
        state.map = nil
        state.mapVersion += 1
      }
    }
  }

  /// Discards the changes that were not stored.
  func drop() {
    let dropped = state.withLock { state -> DirtyLayer in
      let dropped = state.dirty
      state.contentNumber += 1
      if dropped.isChanged { tally.fileCount.subtract(1, ordering: .acquiringAndReleasing) }
      state.dirty = DirtyLayer()
      return dropped
    }
    _ = dropped  // releases the grains without the lock
  }

  // MARK: The catalog's part

  /// Replaces a run that the catalog has moved. Called in the transaction that moved it.
  func move(_ old: Extent, to places: [Extent]) {
    state.withLock { state in
      guard state.removed == nil else { return }
      if state.loaderCount > 0 { state.movesWhileLoading.append((old, places)) }
      if state.map?.move(old, to: places) == false {
        state.map = nil
        state.mapVersion += 1
      }
    }
  }

  /// Takes over the extents of a file that loses its last name; those of `extents` that are not in
  /// `removed` are pinned. Called in the transaction that removes the name.
  func remove(_ extents: [Extent], removed: [Extent]) {
    state.withLock { state in
      state.map = ExtentMap(checked: extents)
      state.removed = ExtentMap(checked: removed)
      if extents != removed {
        state.pinned = ExtentMap(checked: state.removed!.parted(extents).unknown)
      }
      state.inode.linkCount = 0
    }
  }

  /// Handles the end of the last pins of some runs, and returns the runs that no handle needs.
  /// Called in the transaction that removes the pins.
  func unpin(_ extents: [Extent]) -> [Extent] {
    state.withLock { state in
      guard let removed = state.removed, let map = state.map else { return extents }
      let (needed, free) = map.parted(extents)
      if !needed.isEmpty {
        state.removed = ExtentMap(checked: (removed.extents + needed).sorted { $0.start < $1.start })
      }
      return free
    }
  }
}

/// The mirror has the file's id, and neither its path nor its bytes.
extension FileNode: CustomReflectable {
  var customMirror: Mirror { Mirror(self, children: ["id": id]) }
}
