import Dispatch
import Synchronization

/// Who observes a container. As long as nobody does, a commit costs one atomic load.
final class ChangeObservers: Sendable {
  private struct Observer {
    let names: [FileName]
    let buffer: ChangeBuffer
    /// Nil when it could not be kept up.
    var tree: ObservedTree?
  }

  private let count = Atomic<Int>(0)
  private let observers = Guarded<[Observer]>([])
  /// Readers are woken here: whoever commits may hold locks of the engine, and waking may run code of the caller's executor.
  private let waking = DispatchQueue(label: "observers")
  private let isWaking = Atomic<Bool>(false)

  /// Called with the catalog's lock held, in the state that the tree shows.
  func add(_ tree: ObservedTree, _ buffer: ChangeBuffer) {
    observers.withLock { observers in
      observers.append(Observer(names: tree.names, buffer: buffer, tree: tree))
      count.store(observers.count, ordering: .releasing)
    }
  }

  func remove(_ buffer: ChangeBuffer) {
    observers.withLock { observers in
      observers.removeAll { $0.buffer === buffer }
      count.store(observers.count, ordering: .releasing)
    }
  }

  /// Works out what a transaction is about to change, which nothing can prevent any more, with the catalog's lock held.
  func note(_ transaction: Transaction) {
    guard count.load(ordering: .acquiring) > 0, !transaction.isMaintenance, transaction.staged.count > 0
    else {
      return
    }
    observers.withLock { observers in
      let commit = Result { try CommitChanges(transaction) }
      for i in observers.indices {
        do {
          let commit = try commit.get()
          // Not in place of a copy: what is half done when it fails is of no use.
          guard var tree = observers[i].tree else {
            // The observer may have looked anew before this commit.
            observers[i].buffer.overflow()
            observers[i].tree = try ObservedTree(observers[i].names, in: transaction)
            continue
          }
          observers[i].tree = nil
          let changes = try tree.apply(commit, transaction)
          observers[i].tree = tree
          observers[i].buffer.put(changes)
        } catch {
          // A part of the catalog cannot be read: whoever looks anew is told which.
          observers[i].tree = nil
          observers[i].buffer.overflow()
        }
      }
    }
  }

  /// The catalog is another one than the commits have made, with its lock held.
  func lose() {
    observers.withLock { observers in
      for i in observers.indices {
        observers[i].tree = nil
        observers[i].buffer.overflow()
      }
    }
  }

  /// Lets observers have what was noted, soon.
  func wake() {
    guard count.load(ordering: .acquiring) > 0, !isWaking.exchange(true, ordering: .acquiringAndReleasing)
    else {
      return
    }
    waking.async { [self] in
      // Before looking, so that what comes meanwhile is looked for again.
      isWaking.store(false, ordering: .sequentiallyConsistent)
      for buffer in observers.withLock({ $0.map(\.buffer) }) { buffer.wake() }
    }
  }

  /// The container is closed.
  func finish() {
    for buffer in observers.withLock({ $0.map(\.buffer) }) { buffer.finish(dropping: false) }
    wake()
  }
}

extension Container {
  /// Observes what is at a path, and all below it if it is a directory: what anybody in this process creates, changes, moves or
  /// removes there from now on. There need be nothing at the path yet. Links in the path are followed now and not again.
  ///
  /// Changes are told in the order of the commits, when everybody can see them, which may be before they are durable. What is written
  /// through handles is told when it is written back. Nobody waits for an observer: when more than `countMax` changes would wait, they
  /// are dropped, and ``ContainerChange/overflowed`` is in their place; after it come those that are made once it has been read.
  ///
  /// Takes a look at everything below the path, and some 100 bytes of memory for each file as long as it is observed. Throws
  /// `closed`, `invalidName`, `notADirectory` when a file is on the way, `tooManyLinks`, `tableDamaged`.
  public func changes(at path: String, bufferingAtMost countMax: Int = 4096) throws -> ContainerChanges {
    precondition(countMax > 0, "at least one change can wait")
    let place = try StorePath(path)
    let buffer = ChangeBuffer(countMax: countMax)
    // Nobody is to wait for this, unless they change the container faster than it can be looked at.
    for _ in 0..<3 {
      let (snapshot, number) = try core.withLock { core in
        guard !core.isClosed else { throw ContainerError(.closed, path: path) }
        return (core.snapshot, core.changeNumber)
      }
      let tree = try namingPath(path) { try ObservedTree(place.resolved(in: snapshot).names, in: snapshot) }
      let isAdded = try core.withLock { core in
        guard !core.isClosed else { throw ContainerError(.closed, path: path) }
        guard core.changeNumber == number else { return false }
        observers.add(tree, buffer)
        return true
      }
      if isAdded { return ContainerChanges(ChangeSubscription(buffer, in: observers)) }
    }
    try core.withLock { core in
      guard !core.isClosed else { throw ContainerError(.closed, path: path) }
      let tree = try ObservedTree(place.resolved(in: core.snapshot).names, in: core.snapshot)
      observers.add(tree, buffer)
    }
    return ContainerChanges(ChangeSubscription(buffer, in: observers))
  }
}
