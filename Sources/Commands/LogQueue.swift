import Dispatch
import Foundation
import Locks

/// Lines of a log on their way to a stream that may take none: whoever logs does not wait for who reads the
/// log. A thread of its own writes them; of those beyond the limit nothing is kept but their number.
final class LogQueue: Sendable {
  /// Of this process.
  static let shared = LogQueue()

  private struct Fields {
    var waitingCount = 0
    var droppedCount = 0
    /// When the last line was written.
    var lastWritten = ContinuousClock.now
  }

  private let lineCountMax: Int
  private let guarded = Guarded(Fields())
  private let queue = DispatchQueue(label: "dynamics.log")

  init(lineCountMax: Int = 1024) { self.lineCountMax = lineCountMax }

  /// `write` is given the number of lines that were dropped before this one. Waits for room as long as some line is written in `timeMax`.
  func append(waitingAtMost timeMax: Duration = .zero, _ write: @escaping @Sendable (Int) -> Void) {
    while guarded.withLock({ $0.waitingCount >= lineCountMax && .now - $0.lastWritten < timeMax }) {
      Thread.sleep(forTimeInterval: 0.01)
    }
    let droppedCount: Int? = guarded.withLock { guarded in
      guard guarded.waitingCount < lineCountMax else {
        guarded.droppedCount += 1
        return nil
      }
      if guarded.waitingCount == 0 { guarded.lastWritten = .now }
      guarded.waitingCount += 1
      defer { guarded.droppedCount = 0 }
      return guarded.droppedCount
    }
    guard let droppedCount else { return }
    queue.async {
      write(droppedCount)
      self.guarded.withLock { guarded in
        guarded.waitingCount -= 1
        guarded.lastWritten = .now
      }
    }
  }

  /// Returns when what waits was written, or no line was in so long; at once, without a thread, when nothing waits.
  func flush(_ timeMax: Duration = .seconds(1)) {
    guard guarded.withLock({ $0.waitingCount }) > 0 else { return }
    let done = DispatchSemaphore(value: 0)
    queue.async { done.signal() }
    let begin = ContinuousClock.now
    while done.wait(timeout: .now() + .milliseconds(50)) == .timedOut {
      let last = guarded.withLock { max($0.lastWritten, begin) }
      if .now - last >= timeMax { return }
    }
  }
}
