import Dispatch
import Locks

/// State that is changed by one piece of work at a time, in the order in which they came, without a thread of its own. The first thread to
/// submit work while the state is free owns it and drains the queue; threads that submit while it is owned only enqueue. A thread that
/// has drained the queue several times in vain leaves it to a queue of threads, so that it does not work for others for ever.
///
/// Work may add work: it is done afterwards, never within. So nothing that work calls can find the state half changed.
final class SerialState<State: Sendable>: Sendable {
  typealias Work = @Sendable (inout State) -> Void

  private struct Fields {
    /// Nil while a thread owns it.
    var state: State?
    var pending: [Work] = []
    /// The state that an owner gave up, until its successor takes it.
    var left: State?
  }

  private let guarded: Guarded<Fields>
  private let afterWork: (@Sendable (inout State, Int) -> Void)?
  private let successors = DispatchQueue(label: "opendynamics.services.state")

  /// How often one thread drains the queue.
  private static var roundCountMax: Int { 16 }

  /// `afterWork` is called each time that an owner has done what was pending, with how many pieces of
  /// work that were.
  init(_ state: State, afterWork: (@Sendable (inout State, Int) -> Void)? = nil) {
    guarded = Guarded(Fields(state: state))
    self.afterWork = afterWork
  }

  /// Pieces of work that wait.
  var pendingCount: Int { guarded.withLock { $0.pending.count } }

  func perform(_ work: @escaping Work) {
    let taken = guarded.withLock { guarded in
      let state = guarded.state.take()
      if state == nil { guarded.pending.append(work) }
      return state
    }
    guard var state = taken else { return }
    work(&state)
    giveBack(&state)
  }

  /// Waits until the work is done, by this thread or another. Not from within work.
  func performAndWait<Result: Sendable>(_ work: @escaping @Sendable (inout State) -> Result) -> Result {
    if var state = guarded.withLock({ $0.state.take() }) {
      let result = work(&state)
      giveBack(&state)
      return result
    }
    let slot = Guarded<Result?>(nil)
    let done = DispatchSemaphore(value: 0)
    perform { state in
      let result = work(&state)
      slot.withLock { $0 = result }
      done.signal()
    }
    done.wait()
    return slot.withLock { $0! }
  }

  /// The same for tasks, which hold no thread meanwhile.
  func result<Result: Sendable>(of work: @escaping @Sendable (inout State) -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      perform { continuation.resume(returning: work(&$0)) }
    }
  }

  /// Ends the ownership when nothing is pending; else does that first, or leaves it to a successor.
  private func giveBack(_ state: inout State) {
    var count = 1
    for _ in 0..<Self.roundCountMax {
      if count > 0 { afterWork?(&state, count) }
      let next: [Work] = guarded.withLock { guarded in
        defer { guarded.pending = [] }
        if guarded.pending.isEmpty { guarded.state = state }
        return guarded.pending
      }
      if next.isEmpty { return }
      for work in next { work(&state) }
      count = next.count
    }
    guarded.withLock { $0.left = state }
    successors.async { [self] in
      guard var state = guarded.withLock({ $0.left.take() }) else { return }
      giveBack(&state)
    }
  }
}

/// Lets the reader of a connection hand over one batch of messages at a time.
final class ReaderTurn: Sendable {
  private let isFree = DispatchSemaphore(value: 0)

  // Signalled here: a semaphore must not end with less than it began with, as it would with a batch under way.
  init() { isFree.signal() }

  /// Waits until the batch before this one was handled.
  func begin() { isFree.wait() }

  func end() { isFree.signal() }
}
