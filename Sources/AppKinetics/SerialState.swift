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
  private let afterwards: @Sendable (Bool) -> Void

  /// `afterwards` is called by whoever has worked, when it does no more, and told whether it is a thread that receives.
  init(_ state: State, afterwards: @escaping @Sendable (Bool) -> Void = { _ in }) {
    guarded = Mutex(Guarded(state: state))
    self.afterwards = afterwards
  }

  func perform(isReceiving: Bool = false, _ work: @escaping Work) {
    guard var state = take(adding: work) else { return }
    while true {
      let next = guarded.withLock {
        let next = $0.pending
        $0.pending = []
        return next
      }
      for work in next { work(&state) }
      if giveBack(&state) { break }
    }
    afterwards(isReceiving)
  }

  /// Waits until the work is done, by this thread or another. Not from within work.
  func performAndWait<Result: Sendable>(_ work: @escaping @Sendable (inout State) -> Result) -> Result {
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

  private func take(adding work: @escaping Work) -> State? {
    guarded.withLock {
      $0.pending.append(work)
      return $0.state.take()
    }
  }

  /// False when there is more to do.
  private func giveBack(_ state: inout State) -> Bool {
    guarded.withLock {
      guard $0.pending.isEmpty else { return false }
      $0.state = state
      return true
    }
  }
}
