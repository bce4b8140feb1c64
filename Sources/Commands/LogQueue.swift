import Dispatch
import Locks

/// Lines of a log on their way to a stream that may take none: whoever logs does not wait for who reads the
/// log. A thread of its own writes them; of those beyond the limit nothing is kept but their number.
final class LogQueue: Sendable {
  /// Of this process.
  static let shared = LogQueue()

  private struct Fields {
    var waitingCount = 0
    var droppedCount = 0
  }

  private let lineCountMax: Int
  private let guarded = Guarded(Fields())
  private let queue = DispatchQueue(label: "dynamics.log")

  init(lineCountMax: Int = 1024) { self.lineCountMax = lineCountMax }

  /// `write` is given the number of lines that were dropped before this one.
  func append(_ write: @escaping @Sendable (Int) -> Void) {
    let droppedCount: Int? = guarded.withLock { guarded in
      guard guarded.waitingCount < lineCountMax else {
        guarded.droppedCount += 1
        return nil
      }
      guarded.waitingCount += 1
      defer { guarded.droppedCount = 0 }
      return guarded.droppedCount
    }
    guard let droppedCount else { return }
    queue.async {
      write(droppedCount)
      self.guarded.withLock { $0.waitingCount -= 1 }
    }
  }

  /// Returns when what waits was written, or after so long; at once, without a thread, when nothing waits.
  func flush(_ timeMax: DispatchTimeInterval = .seconds(1)) {
    guard guarded.withLock({ $0.waitingCount }) > 0 else { return }
    let done = DispatchSemaphore(value: 0)
    queue.async { done.signal() }
    _ = done.wait(timeout: .now() + timeMax)
  }
}
