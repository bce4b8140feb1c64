import Dispatch
import Locks
import Synchronization

/// The observers of a container. A commit without observers costs one atomic load.
final class ChangeObservers: CommitObserving {
  private struct Observer {
    let names: [FileName]
    let buffer: ChangeBuffer
    /// Nil after an error prevented the tree from following the commits.
    var tree: ObservedTree?
  }

  private let count = Atomic<Int>(0)
  private let observers = Guarded<[Observer]>([])
  /// Queue that wakes readers. A committing thread may hold locks of the store, and waking a reader
  /// may run code of the caller's executor.
  private let waking = DispatchQueue(label: "observers")
  private let isWaking = Atomic<Bool>(false)

  /// Adds an observer. Called with the catalog's lock held, while the catalog is in the state that
  /// `tree` shows.
  private func add(_ tree: ObservedTree, _ buffer: ChangeBuffer) {
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

  /// Computes the changes of a transaction that can no longer fail. Called with the catalog's lock
  /// held.
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
          // Take the tree out of the observer, so that an error does not leave it half updated
          // there.
          guard var tree = observers[i].tree else {
            // The observer may have reread the container before this commit.
            observers[i].buffer.overflow()
            observers[i].tree = try ObservedTree(observers[i].names, in: transaction)
            continue
          }
          observers[i].tree = nil
          let changes = try tree.apply(commit, transaction)
          observers[i].tree = tree
          observers[i].buffer.put(changes)
        } catch {
          // A part of the catalog cannot be read. An observer that rereads the container receives
          // the error.
          observers[i].tree = nil
          observers[i].buffer.overflow()
        }
      }
    }
  }

  /// Reports an overflow to every observer: the catalog was read anew from the disk and no longer
  /// follows from the commits. Called with the catalog's lock held.
  func lose() {
    observers.withLock { observers in
      for i in observers.indices {
        observers[i].tree = nil
        observers[i].buffer.overflow()
      }
    }
  }

  /// Delivers the noted changes to the observers soon, on the waking queue.
  func wake() {
    guard count.load(ordering: .acquiring) > 0, !isWaking.exchange(true, ordering: .acquiringAndReleasing)
    else {
      return
    }
    waking.async { [self] in
      // Cleared before the buffers are read, so that a later change schedules another pass.
      isWaking.store(false, ordering: .sequentiallyConsistent)
      for buffer in observers.withLock({ $0.map(\.buffer) }) { buffer.wake() }
    }
  }

  /// Ends all observations after the last change, when the container is closed.
  func finish() {
    for buffer in observers.withLock({ $0.map(\.buffer) }) { buffer.finish(dropping: false) }
    wake()
  }
}

extension ChangeObservers {
  /// See ``Container/changes(at:bufferingAtMost:)``.
  func observe(_ path: StorePath, bufferingAtMost countMax: Int, in store: Store) throws -> ContainerChanges {
    let buffer = ChangeBuffer(countMax: countMax)
    // The tree is built without the catalog's lock, so that no commit waits for it. After three
    // attempts in which a commit was faster, the tree is built under the lock.
    for _ in 0..<3 {
      let (snapshot, number) = try store.withCurrentState { ($0, $1) }
      let tree = try ObservedTree(path.resolved(in: snapshot).names, in: snapshot)
      let isAdded = try store.withCurrentState { _, changeNumber in
        guard changeNumber == number else { return false }
        add(tree, buffer)
        return true
      }
      if isAdded { return ContainerChanges(ChangeSubscription(buffer, in: self)) }
    }
    try store.withCurrentState { snapshot, _ in
      add(try ObservedTree(path.resolved(in: snapshot).names, in: snapshot), buffer)
    }
    return ContainerChanges(ChangeSubscription(buffer, in: self))
  }
}
