import Dispatch
import Locks

/// Work that is done one piece at a time, in the order in which it came, without a thread of its own. The first thread to
/// submit work while nothing is done owns the queue and drains it; threads that submit meanwhile only enqueue. A thread that
/// has drained the queue several times in vain leaves it to a queue of threads, so that it does not work for others for ever.
///
/// Work may add work: it is done afterwards, never within. So nothing that work calls can find things half changed.
final class SerialWork: Sendable {
  typealias Work = @Sendable () -> Void

  private struct Fields {
    /// By a thread that does work, or by one that is to go on with it.
    var isOwned = false
    var pending: [Work] = []
  }

  private let guarded = Guarded(Fields())
  private let successors = DispatchQueue(label: "opendynamics.services.successors")

  /// How often one thread drains the queue.
  private static var roundCountMax: Int { 16 }

  /// Pieces of work that wait.
  var pendingCount: Int { guarded.withLock { $0.pending.count } }

  func perform(_ work: @escaping Work) {
    let isOwner = guarded.withLock { guarded in
      if guarded.isOwned { guarded.pending.append(work) }
      defer { guarded.isOwned = true }
      return !guarded.isOwned
    }
    guard isOwner else { return }
    work()
    drain()
  }

  /// Waits until the work is done, by this thread or another. Not from within work.
  func performAndWait<Result: Sendable>(_ work: @escaping @Sendable () -> Result) -> Result {
    let isOwner = guarded.withLock { guarded in
      defer { guarded.isOwned = true }
      return !guarded.isOwned
    }
    if isOwner {
      defer { drain() }
      return work()
    }
    let slot = Guarded<Result?>(nil)
    let done = DispatchSemaphore(value: 0)
    perform {
      let result = work()
      slot.withLock { $0 = result }
      done.signal()
    }
    done.wait()
    return slot.withLock { $0! }
  }

  /// Ends the ownership when nothing is pending; else does that first, or leaves it to a successor.
  private func drain() {
    for _ in 0..<Self.roundCountMax {
      let next = guarded.withLock { guarded in
        defer { guarded.pending = [] }
        guarded.isOwned = !guarded.pending.isEmpty
        return guarded.pending
      }
      if next.isEmpty { return }
      for work in next { work() }
    }
    successors.async { self.drain() }
  }
}

/// Lets the reader of a connection hand over one batch of messages at a time.
final class ReaderTurn: Sendable {
  /// Reads the values of what comes with files, one after the other.
  let values = DispatchQueue(label: "opendynamics.services.values")
  private let isFree = DispatchSemaphore(value: 0)

  // Signalled here: a semaphore must not end with less than it began with, as it would with a batch under way.
  init() { isFree.signal() }

  /// Waits until the batch before this one was handled.
  func begin() { isFree.wait() }

  func end() { isFree.signal() }
}
