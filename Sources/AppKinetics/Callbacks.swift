import Dispatch
import LocalTransport
import Locks

/// Calls of the app's own functions: one after another, in the order in which they were added, and never within the runtime's own work.
///
/// Where the app named a queue, there. Else on the thread that received what they are about, which spares waking another one, as long as calls are quick; on a
/// queue when they are not, or come of something else.
final class Callbacks: Sendable {
  private struct Fields {
    var waiting: [@Sendable () -> Void] = []
    /// Somebody makes the calls, or is about to.
    var isTaken = false
    /// Calls that are to be quick before they are made where they come from.
    var quickCallsWanted = 0
  }

  private let guarded = Guarded(Fields())
  private let queue: DispatchQueue
  /// Nil where the app named a queue.
  private let executor: LaneExecutor?

  /// So long a reading thread may be kept from reading. Who takes much longer is relieved (`LaneThread`).
  private static let quickTimeMax = Duration.microseconds(500)
  private static let quickCallsWanted = 16

  init(_ queue: DispatchQueue?, _ executor: LaneExecutor) {
    self.queue = queue ?? DispatchQueue(label: "opendynamics.services.callbacks")
    self.executor = queue == nil ? executor : nil
  }

  func add(_ call: @escaping @Sendable () -> Void) {
    guard let executor else { return queue.async(execute: call) }
    let (isTaken, isQuick) = guarded.withLock { guarded in
      guarded.waiting.append(call)
      defer { guarded.isTaken = true }
      return (guarded.isTaken, guarded.quickCallsWanted == 0)
    }
    guard !isTaken else { return }
    if !isQuick || !executor.performHere(atOnce: true, { self.run(isReader: true) }) {
      queue.async { self.run() }
    }
  }

  private func run(isReader: Bool = false) {
    let begin = ContinuousClock.now
    var last = begin
    while let calls = taken() {
      for (i, call) in calls.enumerated() {
        call()
        let now = ContinuousClock.now
        note(now - last)
        last = now
        guard isReader, now - begin > Self.quickTimeMax else { continue }
        guarded.withLock { $0.waiting.insert(contentsOf: calls[(i + 1)...], at: 0) }
        return queue.async { self.run() }
      }
    }
  }

  private func taken() -> [@Sendable () -> Void]? {
    guarded.withLock { guarded in
      guard !guarded.waiting.isEmpty else {
        guarded.isTaken = false
        return nil
      }
      defer { guarded.waiting = [] }
      return guarded.waiting
    }
  }

  private func note(_ duration: Duration) {
    guarded.withLock { guarded in
      if duration > Self.quickTimeMax {
        guarded.quickCallsWanted = Self.quickCallsWanted
      } else if guarded.quickCallsWanted > 0 {
        guarded.quickCallsWanted -= 1
      }
    }
  }
}
