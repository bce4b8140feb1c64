import ContainerStore
import Foundation

/// Tells a stream's delegate what happens, on the run loops in which the stream is scheduled.
///
/// On Linux, Foundation's streams leave this to their subclasses. A timer that is due at once carries an event: any thread may add
/// one, and it wakes the loop.
final class StreamEvents: Sendable {
  private let state = Guarded(State())

  private struct State {
    var places: [Place] = []
    /// In the order in which they happened, each once.
    var events: [Stream.Event] = []
  }

  private struct Place: Equatable {
    var loop: RunLoop
    var mode: RunLoop.Mode

    static func == (a: Place, b: Place) -> Bool { a.loop === b.loop && a.mode == b.mode }
  }

  /// The stream, for a timer that must not keep it alive.
  private struct WeakStream: @unchecked Sendable {
    // Invariant: it is handed only to the delegate that asked for its events, on that delegate's run loop.
    weak var stream: Stream?
  }

  func schedule(_ stream: Stream, in loop: RunLoop, forMode mode: RunLoop.Mode, _ now: Stream.Event?) {
    let place = Place(loop: loop, mode: mode)
    state.withLock { if !$0.places.contains(place) { $0.places.append(place) } }
    if let now { post([now], of: stream) }
  }

  func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) {
    state.withLock { $0.places.removeAll { $0 == Place(loop: loop, mode: mode) } }
  }

  func removeAll() {
    state.withLock { $0 = State() }
  }

  func post(_ events: [Stream.Event], of stream: Stream) {
    state.withLock { state in
      guard !state.places.isEmpty else { return }
      state.events += events.filter { !state.events.contains($0) }
      let box = WeakStream(stream: stream)
      for place in state.places {
        let timer = Timer(timeInterval: 0, repeats: false) { [self] _ in
          guard let stream = box.stream else { return }
          deliver(stream)
        }
        place.loop.add(timer, forMode: place.mode)
      }
    }
  }

  private func deliver(_ stream: Stream) {
    // One loop hands out what there is; the others find nothing. An event that the delegate causes waits for its own timer.
    let events = state.withLock { state in
      defer { state.events = [] }
      return state.events
    }
    for event in events { stream.delegate?.stream(stream, handle: event) }
  }
}
