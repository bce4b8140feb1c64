import Dispatch
import Synchronization

/// State that is changed by one piece of work at a time, in the order in which they came, without a thread of its own: whoever comes first
/// does its own work and that of those who come meanwhile.
///
/// Work may add work: it is done afterwards, never within. So nothing that work calls can find the state half changed.
final class SerialState<State: Sendable>: Sendable {
  typealias Work = @Sendable (inout State) -> Void

  private struct Guarded {
    /// Nil while somebody works.
    var state: State?
    var pending: [Work] = []
  }

  private let guarded: Mutex<Guarded>

  init(_ state: State) { guarded = Mutex(Guarded(state: state)) }

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
    let slot = Mutex<Result?>(nil)
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

  /// When nothing more has come meanwhile; else that is done first.
  private func giveBack(_ state: inout State) {
    while true {
      let next: [Work] = guarded.withLock { guarded in
        defer { guarded.pending = [] }
        if guarded.pending.isEmpty { guarded.state = state }
        return guarded.pending
      }
      if next.isEmpty { return }
      for work in next { work(&state) }
    }
  }
}
