import ContainerStore
import Foundation
import Locks

/// Tells a stream's delegate what happens, on the run loops in which the stream is scheduled.
///
/// On Linux, Foundation's streams leave this to their subclasses. A timer that is due at once carries an event: any thread may add
/// one, and it wakes the loop.
final class StreamEvents: Sendable {
  private let state = Guarded(State())

  private struct State {
    var places: [Place] = []
    var placeCount = 0
    /// In the order in which they happened, each once.
    var events: [Stream.Event] = []
  }

  private struct Place {
    var number: Int
    var loop: RunLoop
    var mode: RunLoop.Mode
    /// A timer that will hand out the events waits there: one is enough, however much happens before the loop runs.
    var hasTimer = false
  }

  /// The stream, for a timer that must not keep it alive.
  private struct WeakStream: @unchecked Sendable {
    // Invariant: it is handed only to the delegate that asked for its events, on that delegate's run loop.
    weak var stream: Stream?
  }

  func schedule(_ stream: Stream, in loop: RunLoop, forMode mode: RunLoop.Mode, _ now: Stream.Event?) {
    state.withLock { state in
      guard !state.places.contains(where: { $0.loop === loop && $0.mode == mode }) else { return }
      state.places.append(Place(number: state.placeCount, loop: loop, mode: mode))
      state.placeCount += 1
    }
    if let now { post([now], of: stream) }
  }

  func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) {
    state.withLock { $0.places.removeAll { $0.loop === loop && $0.mode == mode } }
  }

  func removeAll() {
    state.withLock { ($0.places, $0.events) = ([], []) }
  }

  func post(_ events: [Stream.Event], of stream: Stream) {
    state.withLock { state in
      guard !state.places.isEmpty else { return }
      state.events += events.filter { !state.events.contains($0) }
      guard !state.events.isEmpty else { return }
      let box = WeakStream(stream: stream)
      for i in state.places.indices where !state.places[i].hasTimer {
        state.places[i].hasTimer = true
        let number = state.places[i].number
        let timer = Timer(timeInterval: 0, repeats: false) { [self] _ in
          guard let stream = box.stream else { return }
          deliver(stream, at: number)
        }
        state.places[i].loop.add(timer, forMode: state.places[i].mode)
      }
    }
  }

  private func deliver(_ stream: Stream, at number: Int) {
    // One loop hands out what there is; the others find nothing. An event that the delegate causes waits for its own timer.
    let events = state.withLock { state -> [Stream.Event] in
      // The stream may have been removed from this loop meanwhile.
      guard let i = state.places.firstIndex(where: { $0.number == number }) else { return [] }
      state.places[i].hasTimer = false
      defer { state.events = [] }
      return state.events
    }
    for event in events { stream.delegate?.stream(stream, handle: event) }
  }
}
