import Dispatch
import EncryptedFile

/// The files of a container that are open, and when what was written to them goes to the store.
final class OpenFiles: Sendable {
  let tally: DirtyTally
  /// Held while changes are written back: one batch of the container at a time.
  let writing = Guarded(OneAtATime())
  /// Not a global queue: those share their threads with Swift's tasks.
  private let background = DispatchQueue(label: "writing back")
  private let byteCountMax: Int
  private let state = Guarded(State())

  private struct State {
    var files: [UInt64: (node: FileNode, handleCount: Int)] = [:]
    var isClosed = false
    var timerIsSet = false
    var isWritingAhead = false
  }

  /// How long a change waits at most when nothing else causes it to be written back.
  static let delayMilliseconds = 1000

  init(byteCountMax: Int) {
    self.byteCountMax = byteCountMax
    tally = DirtyTally(spareByteCountMax: byteCountMax)
  }

  /// Whether the catalog lacks something. Costs one atomic load.
  var hasChanges: Bool { tally.fileCount.load(ordering: .acquiring) > 0 }

  var nodes: [FileNode] { state.withLock { $0.files.values.map(\.node) } }

  /// Those of which the catalog has not the newest contents.
  var changedFiles: Set<UInt64> {
    Set(nodes.filter { $0.state.withLock { $0.dirty.isChanged || $0.frozen != nil } }.map(\.id))
  }

  // MARK: Opening and closing

  /// The node of a file, made by `make` if this is its first handle. In a container that changes, called in a transaction.
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
    /// It was the last handle, and there were changes again: nothing was done.
    case changed
    /// It was the last handle.
    case last
  }

  /// A handle is closed. With `dropping`, changes that are not stored are no reason to wait.
  func release(_ node: FileNode, dropping: Bool) -> Release {
    state.withLock { state in
      guard let known = state.files[node.id], known.node === node else { return .last }
      guard known.handleCount == 1 else {
        state.files[node.id] = (node, known.handleCount - 1)
        return .shared
      }
      let isChanged = node.state.withLock { state in
        let isChanged = state.removed == nil && (state.dirty.isChanged || state.frozen != nil)
        if !isChanged || dropping { state.isReleased = true }
        return isChanged
      }
      if isChanged, !dropping { return .changed }
      state.files[node.id] = nil
      return .last
    }
  }

  /// From now on nothing is opened, and no handle takes changes.
  func close() {
    let nodes = state.withLock { state in
      state.isClosed = true
      return state.files.values.map(\.node)
    }
    for node in nodes { node.state.withLock { $0.isReleased = true } }
    tally.releaseSpares(forGood: true)
  }

  // MARK: What the catalog tells

  /// The files' last names go, in the transaction that calls. Returns which of their extents open handles still need.
  func remove(_ files: [(file: UInt64, extents: [Extent], removed: [Extent])]) -> Set<Extent> {
    guard !files.isEmpty else { return [] }
    var needed: Set<Extent> = []
    for (file, extents, removed) in files {
      guard let node = state.withLock({ $0.files[file]?.node }) else { continue }
      node.remove(extents, removed: removed)
      needed.formUnion(removed)
    }
    return needed
  }

  /// Nothing in the catalog needs these runs of files any more, in the transaction that calls. Returns what open handles do not need
  /// either; the rest is theirs to give back.
  func unpin(_ files: [(file: UInt64, extents: [Extent])]) -> [Extent] {
    files.flatMap { file, extents in
      state.withLock { $0.files[file]?.node }?.unpin(extents) ?? extents
    }
  }

  /// A run of a file was given other places, in the transaction that calls.
  func move(_ old: Extent, of file: UInt64, to places: [Extent]) {
    state.withLock { $0.files[file]?.node }?.move(old, to: places)
  }

  // MARK: When to write back

  /// Whether so many bytes more are too many.
  func isFull(adding byteCount: Int) -> Bool {
    tally.byteCount.load(ordering: .relaxed) + byteCount > byteCountMax
  }

  /// Something was written: sees to it that it is written back in the background when the cache is half full, and after a second.
  func noteChange(in container: Container) {
    let isHalfFull = tally.byteCount.load(ordering: .relaxed) >= byteCountMax / 2
    let (setTimer, writeAhead) = state.withLock { state in
      let setTimer = !state.timerIsSet
      state.timerIsSet = true
      let writeAhead = isHalfFull && !state.isWritingAhead
      if writeAhead { state.isWritingAhead = true }
      return (setTimer, writeAhead)
    }
    if setTimer { self.setTimer(in: container) }
    if writeAhead {
      background.async { [weak container] in
        // What fails stays in the cache, and the next call that needs room reports it.
        _ = try? container?.writeBack()
        self.state.withLock { $0.isWritingAhead = false }
      }
    }
  }

  private func setTimer(in container: Container) {
    background.asyncAfter(deadline: .now() + .milliseconds(Self.delayMilliseconds)) {
      [weak container] in
      self.state.withLock { $0.timerIsSet = false }
      guard let container, self.hasChanges else { return self.tally.releaseSpares() }
      _ = try? container.writeBack()
      // What could not be written is tried again, as long as the container is open.
      if self.hasChanges, !container.isClosed {
        self.noteChange(in: container)
      } else {
        self.tally.releaseSpares()
      }
    }
  }
}
