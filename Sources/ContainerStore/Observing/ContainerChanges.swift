/// The changes at or below a path of a container, in the order of the commits, from the call of
/// ``Container/changes(at:bufferingAtMost:)`` on. The sequence ends after the last change when the
/// container is closed, and at once when the waiting task is cancelled.
///
/// The sequence is for one reader: several readers each receive a part of the changes. For a second
/// complete sequence, observe a second time. Releasing the sequence and its iterators ends the
/// observation.
public struct ContainerChanges: AsyncSequence, Sendable {
  public typealias Element = ContainerChange
  public typealias Failure = Never

  private let subscription: ChangeSubscription

  init(_ subscription: ChangeSubscription) { self.subscription = subscription }

  public func makeAsyncIterator() -> Iterator { Iterator(subscription: subscription) }

  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let subscription: ChangeSubscription

    public mutating func next() async -> ContainerChange? { await next(isolation: nil) }

    public mutating func next(isolation actor: isolated (any Actor)?) async -> ContainerChange? {
      let subscription = subscription
      return await withTaskCancellationHandler {
        await withCheckedContinuation { subscription.buffer.take(for: $0) }
      } onCancel: {
        subscription.cancel()
      }
    }
  }
}

/// Keeps an observer registered with its container as long as the sequence or an iterator exists.
final class ChangeSubscription: Sendable {
  fileprivate let buffer: ChangeBuffer
  private let observers: ChangeObservers

  init(_ buffer: ChangeBuffer, in observers: ChangeObservers) {
    self.buffer = buffer
    self.observers = observers
  }

  deinit { observers.remove(buffer) }

  fileprivate func cancel() {
    observers.remove(buffer)
    buffer.finish(dropping: true)
    buffer.wake()
  }
}
