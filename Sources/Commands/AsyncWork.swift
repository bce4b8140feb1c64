import CPosix
import Foundation
import Locks

/// Asynchronous work in a command, which is a plain function on the main thread.
enum AsyncWork {
  /// Waits for `body`. The first signal cancels it, and what it throws then ends the command on that signal.
  static func run<Result: Sendable>(
    _ body: sending @escaping () async throws -> Result
  ) throws -> Result {
    // The broker looks at who asks, and sees nothing of a process that hides.
    _ = cposix_set_dumpable(1)
    let slot = Guarded<Swift.Result<Result, any Error>?>(nil)
    let done = DispatchSemaphore(value: 0)
    let task = Task {
      let result: Swift.Result<Result, any Error>
      do { result = .success(try await body()) } catch { result = .failure(error) }
      slot.withLock { $0 = result }
      done.signal()
    }
    Thread.detachNewThread {
      Interruption.shared.waitForSignal()
      task.cancel()
    }
    done.wait()
    return try slot.withLock { $0! }.get()
  }
}

/// Says on standard error what is waited for when it takes longer than two seconds.
final class WaitNote: Sendable {
  private let task: Task<Void, any Error>

  init(_ text: String) {
    task = Task {
      try await Task.sleep(for: .seconds(2))
      StandardError.write("dynamics: \(text)\n")
    }
  }

  func end() { task.cancel() }
}

extension Interruption {
  /// Blocks until the first signal came; it is seen by everybody who waits.
  func waitForSignal() {
    var request = pollfd(fd: wakeDescriptor, events: Int16(POLLIN), revents: 0)
    while poll(&request, 1, -1) < 0, errno == EINTR {}
  }
}
