import Dispatch

/// Where tasks and calls may run that have to do with what lanes receive: where it is received, so that nothing goes from thread to thread.
///
/// What one of its lanes' threads sets off runs there, after what was received; everything else runs on a queue. It may take as long as it likes: then
/// another thread reads on (`LaneThread`).
package final class LaneExecutor: TaskExecutor {
  private let queue = DispatchQueue(label: "opendynamics.lanes.tasks", attributes: .concurrent)

  package init() {}

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let work: @Sendable () -> Void = { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    if !performHere(work) { queue.async(execute: work) }
  }

  /// Does `work` on this thread, soon, when it is one of a lane of this executor; false when it is not, or, with `atOnce`, when other work is before it.
  package func performHere(atOnce: Bool = false, _ work: @escaping @Sendable () -> Void) -> Bool {
    guard let thread = LaneThread.current.currentValue, thread.executor === self else { return false }
    return thread.work.add(work, atOnce: atOnce)
  }
}
