import Dispatch
import EncryptedFile
import Locks

/// The open files of a container, and the schedule for storing their changes.
final class OpenFiles: RunHolding {
  let tally: DirtyTally
  /// Held during a write-back: one batch of the container at a time.
  let writing = Guarded(OneAtATime())
  /// A queue of its own: global queues share their threads with Swift's tasks.
  private let background = DispatchQueue(label: "writing back")
  private let byteCountMax: Int
  private let state = Guarded(State())

  private struct State {
    var files: [UInt64: (node: FileNode, handleCount: Int)] = [:]
    var handles: [ObjectIdentifier: WeakHandle] = [:]
    var isClosed = false
    var timerIsSet = false
    var isWritingAhead = false
  }

  private struct WeakHandle {
    weak var handle: OpenFile?
  }

  /// The maximum time that a change waits if nothing else causes a write-back.
  static let delayMilliseconds = 1000

  init(byteCountMax: Int) {
    self.byteCountMax = byteCountMax
    tally = DirtyTally(spareByteCountMax: byteCountMax)
  }

  /// Whether there are changes that the catalog lacks. Costs one atomic load.
  var hasChanges: Bool { tally.fileCount.load(ordering: .acquiring) > 0 }

  var nodes: [FileNode] { state.withLock { $0.files.values.map(\.node) } }

  /// Ids of the files whose newest contents are not in the catalog.
  var changedFiles: Set<UInt64> {
    Set(nodes.filter { $0.state.withLock { $0.isUnstored } }.map(\.id))
  }

  // MARK: Opening and closing

  /// The node of a file; `make` creates it for the first handle. In a container that is open for
  /// writing, called in a transaction.
  func open(_ file: UInt64, make: () throws -> FileNode) throws -> FileNode {
    try state.withLock { state in
      guard !state.isClosed else { throw ContainerError(.closed) }
      if let known = state.files[file], !known.node.state.withLock({ $0.isReleased }) {
        state.files[file] = (known.node, known.handleCount + 1)
        return known.node
      }
      let node = try make()
      state.files[file] = (node, 1)
      return node
    }
  }

  enum Release {
    /// Other handles are open.
    case shared
    /// It was the last handle, and there are new changes: nothing was done.
    case changed
    /// It was the last handle.
    case last
  }

  /// Releases a handle. With `dropping`, the release does not wait for changes to be stored.
  func release(_ node: FileNode, dropping: Bool) -> Release {
    state.withLock { state in
      guard let known = state.files[node.id], known.node === node else { return .last }
      guard known.handleCount == 1 else {
        state.files[node.id] = (node, known.handleCount - 1)
        return .shared
      }
      let isChanged = node.state.withLock { state in
        let isChanged = state.removed == nil && state.isUnstored
        if !isChanged || dropping { state.isReleased = true }
        return isChanged
      }
      if isChanged, !dropping { return .changed }
      state.files[node.id] = nil
      return .last
    }
  }

  func add(_ handle: OpenFile) {
    state.withLock { $0.handles[ObjectIdentifier(handle)] = WeakHandle(handle: handle) }
  }

  func remove(_ handle: OpenFile) {
    state.withLock { _ = $0.handles.removeValue(forKey: ObjectIdentifier(handle)) }
  }

  /// Ends all openings: later ones throw `closed`, and handles accept no more changes. Returns the paths, as they were given when they were
  /// opened, of files with changes that the catalog lacks.
  @discardableResult
  func endOpenings() -> [String] {
    defer { tally.releaseSpares(forGood: true) }
    return closedNodes().filter { node in
      node.state.withLock { state in
        state.isReleased = true
        return state.isUnstored
      }
    }.map(\.path)
  }

  private func closedNodes() -> [FileNode] {
    state.withLock { state in
      state.isClosed = true
      return state.files.values.map(\.node)
    }
  }

  /// The same, and nothing that was written or opened stays in memory, also where handles are still referenced.
  func close() {
    endOpenings()
    for node in closedNodes() { node.forget() }
    for handle in state.withLock({ $0.handles.values.compactMap(\.handle) }) { handle.forget() }
  }

  // MARK: RunHolding

  func remove(_ files: [Transaction.DroppedFile]) -> Set<Extent> {
    guard !files.isEmpty else { return [] }
    var needed: Set<Extent> = []
    for dropped in files {
      guard let node = state.withLock({ $0.files[dropped.file]?.node }) else { continue }
      node.remove(dropped.extents, removed: dropped.removed)
      needed.formUnion(dropped.removed)
    }
    return needed
  }

  func unpin(_ files: [Transaction.UnpinnedRuns]) -> [Extent] {
    files.flatMap { runs in
      state.withLock { $0.files[runs.file]?.node }?.unpin(runs.extents) ?? runs.extents
    }
  }

  func move(_ old: Extent, of file: UInt64, to runs: [Extent]) {
    state.withLock { $0.files[file]?.node }?.move(old, to: runs)
  }

  // MARK: When to write back

  /// Whether `byteCount` more bytes would exceed the size of the cache.
  func isFull(adding byteCount: Int) -> Bool {
    tally.byteCount.load(ordering: .relaxed) + byteCount > byteCountMax
  }

  /// Schedules a write-back after a change: at once in the background if the cache is half full,
  /// else after a second.
  func noteChange(in store: Store) {
    let isHalfFull = tally.byteCount.load(ordering: .relaxed) >= byteCountMax / 2
    let (setTimer, writeAhead) = state.withLock { state in
      let setTimer = !state.timerIsSet
      state.timerIsSet = true
      let writeAhead = isHalfFull && !state.isWritingAhead
      if writeAhead { state.isWritingAhead = true }
      return (setTimer, writeAhead)
    }
    if setTimer { self.setTimer(in: store) }
    if writeAhead {
      background.async { [weak store] in
        // Bytes that cannot be stored stay in the cache; the next call that needs room reports it.
        if let store { _ = try? WriteBack(store: store, files: self).run() }
        self.state.withLock { $0.isWritingAhead = false }
      }
    }
  }

  private func setTimer(in store: Store) {
    background.asyncAfter(deadline: .now() + .milliseconds(Self.delayMilliseconds)) {
      [weak store] in
      self.state.withLock { $0.timerIsSet = false }
      guard let store, self.hasChanges else { return self.tally.releaseSpares() }
      _ = try? WriteBack(store: store, files: self).run()
      // A failed write-back is repeated as long as the container is open.
      if self.hasChanges, !store.isClosed {
        self.noteChange(in: store)
      } else {
        self.tally.releaseSpares()
      }
    }
  }
}

/// The mirror shows nothing: the paths are not for a dump.
extension OpenFiles: CustomReflectable {
  var customMirror: Mirror { Mirror(self, children: []) }
}
