package import NIOCore
import NIOPosix

/// One of the process's event loops: the lanes that are opened on it share its thread, and tasks may run there, too, so that neither what they
/// send nor what they wait for goes from thread to thread.
package final class LaneLoop: TaskExecutor {
  package let eventLoop: any EventLoop

  /// The process's event loops are given in turn.
  package init() { eventLoop = MultiThreadedEventLoopGroup.singleton.next() }

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    eventLoop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
