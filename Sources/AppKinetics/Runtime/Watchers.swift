/// The streams that listen to events of one kind.
struct Watchers<Event: Sendable> {
  private var continuations: [UInt64: AsyncStream<Event>.Continuation] = [:]

  mutating func add(_ continuation: AsyncStream<Event>.Continuation, as number: UInt64) {
    continuations[number] = continuation
  }

  mutating func remove(_ number: UInt64) { continuations[number] = nil }

  func yield(_ event: Event) {
    for continuation in continuations.values { continuation.yield(event) }
  }

  mutating func finish() {
    for continuation in continuations.values { continuation.finish() }
    continuations = [:]
  }
}

extension Core {
  /// Lets a stream of the interface listen to `watchers` until it is no longer read.
  func watch<Event: Sendable>(
    _ watchers: any ReferenceWritableKeyPath<Core, Watchers<Event>> & Sendable,
    _ continuation: AsyncStream<Event>.Continuation
  ) {
    guard life != .stopped else { return continuation.finish() }
    let number = nextWatcher()
    self[keyPath: watchers].add(continuation, as: number)
    continuation.onTermination = { [runtime] _ in
      runtime.perform { $0[keyPath: watchers].remove(number) }
    }
  }
}
