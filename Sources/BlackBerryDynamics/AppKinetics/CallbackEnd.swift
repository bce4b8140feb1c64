import Dispatch
import Locks

/// A delegate of one kind, called on the queue of callbacks. Calls that arrive while there is no
/// delegate wait for one, in their order.
final class CallbackEnd<Delegate>: Sendable {
  typealias Call = @Sendable (Delegate) -> Void

  private struct State {
    // An existential type is no class, so that it cannot be the type of a weak reference here.
    weak var delegate: AnyObject?
    var owner: ObjectIdentifier?
    var waiting: [(what: GDCallback, call: Call)] = []
  }

  /// The most calls that wait. The oldest are lost beyond that.
  private static var waitingCountMax: Int { 4096 }

  private let configuration: GDConfiguration
  private let state = Guarded(State())

  init(_ configuration: GDConfiguration) { self.configuration = configuration }

  private var queue: DispatchQueue { configuration.callbackQueue }

  var delegate: Delegate? { state.withLock { $0.delegate } as? Delegate }

  /// Calls that wait are made soon, on the queue. The owner is the object whose delegate it is.
  func set(_ delegate: Delegate?, by owner: AnyObject) {
    state.withLock { state in
      (state.delegate, state.owner) = (delegate as AnyObject?, ObjectIdentifier(owner))
    }
    queue.async { self.makeWaitingCalls() }
  }

  /// The owner is gone, and its delegate with it, unless another owner has set one since.
  func clear(ownedBy owner: ObjectIdentifier) {
    state.withLock { if $0.owner == owner { ($0.delegate, $0.owner) = (nil, nil) } }
  }

  /// Makes the call on the queue.
  func call(_ what: GDCallback, _ call: @escaping Call) {
    append(what, call)
    queue.async { self.makeWaitingCalls() }
  }

  /// Makes the call at once, behind those that wait. For callers on the queue.
  func callOnQueue(_ what: GDCallback, _ call: @escaping Call) {
    append(what, call)
    makeWaitingCalls()
  }

  /// Drops the calls about a request that wait.
  func drop(_ requestID: String) {
    let dropped = state.withLock { state in
      let dropped = state.waiting.filter { $0.what.requestID == requestID }
      state.waiting.removeAll { $0.what.requestID == requestID }
      return dropped
    }
    // Released without the lock.
    _ = dropped
  }

  private func append(_ what: GDCallback, _ call: @escaping Call) {
    let isFull = state.withLock { state in
      let isFull = state.waiting.count == Self.waitingCountMax
      if isFull { state.waiting.removeFirst() }
      state.waiting.append((what, call))
      return isFull
    }
    if isFull {
      configuration.logger.error(
        "a call is lost: more than \(Self.waitingCountMax) wait for \(Delegate.self)")
    }
  }

  private func makeWaitingCalls() {
    // The reference may be the last one, and whoever it lets go takes the lock (`clear`): it does
    // not end while the lock is held.
    while let delegate {
      let next = state.withLock { $0.waiting.isEmpty ? nil : $0.waiting.removeFirst() }
      guard let next else { return }
      configuration.onCallback?(next.what)
      next.call(delegate)
    }
  }
}
