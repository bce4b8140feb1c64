import Locks

/// A buffer of changes between commits and one observer.
///
/// Changes are added with locks of the store held. Adding wakes no reader, because waking runs code
/// of the caller's executor.
final class ChangeBuffer: Sendable {
  private typealias Reader = CheckedContinuation<ContainerChange?, Never>

  private struct State {
    var changes: [ContainerChange] = []
    /// Index of the first change that was not taken yet.
    var first = 0
    /// While set, new changes are dropped; cleared when the reader takes `overflowed`.
    var hasOverflowed = false
    var isFinished = false
    var readers: [Reader] = []

    mutating func popFirst() -> ContainerChange? {
      guard first < changes.count else { return nil }
      let change = changes[first]
      first += 1
      if first == changes.count {
        changes.removeAll(keepingCapacity: changes.count <= 256)
        first = 0
      } else if first >= 1024, first > changes.count / 2 {
        changes.removeFirst(first)
        first = 0
      }
      if change == .overflowed { hasOverflowed = false }
      return change
    }
  }

  private let countMax: Int
  private let state = Guarded(State())

  init(countMax: Int) { self.countMax = countMax }

  /// Adds all changes of a commit, or an overflow if they do not fit.
  func put(_ changes: [ContainerChange]) {
    guard !changes.isEmpty else { return }
    state.withLock { state in
      guard !state.isFinished, !state.hasOverflowed else { return }
      guard state.changes.count - state.first + changes.count <= countMax else {
        return Self.overflow(&state)
      }
      state.changes += changes
    }
  }

  func overflow() {
    state.withLock { state in
      guard !state.isFinished, !state.hasOverflowed else { return }
      Self.overflow(&state)
    }
  }

  private static func overflow(_ state: inout State) {
    state.changes = [.overflowed]
    state.first = 0
    state.hasOverflowed = true
  }

  /// Gives the buffered changes to the waiting readers.
  func wake() {
    while let (reader, change) = state.withLock({ state -> (Reader, ContainerChange?)? in
      guard !state.readers.isEmpty else { return nil }
      let change = state.popFirst()
      guard change != nil || state.isFinished else { return nil }
      return (state.readers.removeFirst(), change)
    }) {
      reader.resume(returning: change)
    }
  }

  /// Marks the end of the changes; with `dropping`, discards the buffered ones.
  func finish(dropping: Bool) {
    state.withLock { state in
      state.isFinished = true
      if dropping { (state.changes, state.first) = ([], 0) }
    }
  }

  func take(for reader: CheckedContinuation<ContainerChange?, Never>) {
    state.withLock { $0.readers.append(reader) }
    wake()
  }
}
