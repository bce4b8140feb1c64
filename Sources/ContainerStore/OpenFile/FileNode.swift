import EncryptedFile
import SodiumPrimitives

/// What all handles of one open file share: its size, its extents, and what was written and is not stored yet.
///
/// Locks, outermost first: the lock of the writing back (`OpenFiles.writing`), the catalog's, the registry's, a node's. Nothing is
/// read, sealed or stored with a node's lock held.
final class FileNode: Sendable {
  let id: UInt64
  let key: FileKey
  let state: Guarded<State>
  /// Held by appends, so that none comes between the pieces of a long one.
  let appending = Guarded(OneAtATime())
  private let tally: DirtyTally
  private let writerKeys = Guarded<[Identifier: SharedWriterKey]>([:])
  private static let writerKeyCountMax = 16

  struct State {
    /// As the handles see it.
    var size: UInt64
    /// Changes whenever the contents do.
    var contentNumber: UInt64 = 0
    /// Of the catalog; for a file that was removed, the last.
    var inode: Inode
    /// What the catalog has; nil when it has to be asked.
    var map: ExtentMap?
    /// Changes with every invalidation, so that what was loaded before one is not taken for new.
    var mapVersion = 0
    /// How many threads are reading the extents from the catalog.
    var loaderCount = 0
    /// Runs that were moved since the first of them began.
    var movesWhileLoading: [(old: Extent, places: [Extent])] = []
    var dirty = DirtyLayer()
    /// Being sealed and stored; beneath `dirty`.
    var frozen: DirtyLayer?
    /// When it was removed: what of it the catalog gave up then, and the handles have to give back. It has no file any more.
    var removed: ExtentMap?
    /// What pins kept of it when it was removed: not for the handles to give back, unless they are the last to need it.
    var pinned = ExtentMap()
    /// The last handle was closed.
    var isReleased = false
    /// Reads of a removed file that are under way.
    var readCount = 0
    /// Stored after the removal, not needed, and perhaps still being read.
    var garbage: [Extent] = []
  }

  init(id: UInt64, inode: Inode, key: consuming FileKey, tally: DirtyTally) {
    self.id = id
    self.key = key
    self.tally = tally
    state = Guarded(State(size: inode.size, inode: inode))
  }

  var size: UInt64 { state.withLock { $0.size } }
  var contentNumber: UInt64 { state.withLock { $0.contentNumber } }
  var isRemoved: Bool { state.withLock { $0.removed != nil } }

  // MARK: Keys

  final class SharedWriterKey: Sendable {
    let key: WriterKey

    init(_ key: consuming WriterKey) { self.key = key }
  }

  /// The key for what one session wrote; files rarely have many.
  func writerKey(_ session: Identifier) throws -> SharedWriterKey {
    try writerKeys.withLock { keys in
      if let known = keys[session] { return known }
      if keys.count >= Self.writerKeyCountMax { keys = [:] }
      let derived = SharedWriterKey(try key.writerKey(session: session))
      keys[session] = derived
      return derived
    }
  }

  // MARK: Changing

  /// Writes at an offset, or at the end when there is none, all at once for readers. Returns the offset.
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

  /// What is to be stored: the changes so far, and the size with them.
  struct Batch: Sendable {
    let node: FileNode
    let layer: DirtyLayer
    let size: UInt64
  }

  /// Takes the changes so far aside, nil when there are none. ``finish(_:)`` or ``restore()`` follows.
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

  /// The batch is stored, and the file's extents are those of `map`.
  func finish(_ map: ExtentMap, _ inode: Inode? = nil) {
    state.withLock { state in
      state.map = map
      state.frozen = nil
      if let inode { state.inode = inode }
    }
    tally.fileCount.subtract(1, ordering: .acquiringAndReleasing)
  }

  /// The batch was not stored, or perhaps not: its bytes are dirty again.
  func restore(_ batch: Batch) {
    state.withLock { state in
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

  /// Forgets what was not stored.
  func drop() {
    let dropped = state.withLock { state -> DirtyLayer in
      let dropped = state.dirty
      state.contentNumber += 1
      if dropped.isChanged { tally.fileCount.subtract(1, ordering: .acquiringAndReleasing) }
      state.dirty = DirtyLayer()
      return dropped
    }
    _ = dropped  // its grains go here, without the lock
  }

  // MARK: The catalog's part

  /// A run has other places; the catalog knows them. Called in the transaction that moved it.
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

  /// The catalog's last name of the file goes, with these extents; what was not removed of them is pinned. Called in that transaction.
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

  /// The last pins of these runs have gone. Returns what no handle needs. Called in that transaction.
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
