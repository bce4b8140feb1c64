import CPosix
import Dispatch
import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Preparation of libdispatch, which ends the process when there is no file descriptor left for its
/// first timer, and waits for ever where the system gives no thread.
enum DispatchResources {
  /// Threads for the queues of a container.
  private static let threadCount: Int32 = 4

  /// Descriptors for an epoll, an event and a timer, and some that other threads open meanwhile.
  private static let descriptorCount = 8
  private static let isReady = Guarded(false)

  /// Makes libdispatch open its descriptors, once in a process. Throws with `EMFILE` or `ENFILE`
  /// when too few are left, and with `EAGAIN` when there are no threads.
  static func prepare() throws(IOFailure) {
    try isReady.withLock { isReady throws(IOFailure) in
      if isReady { return }
      try checkDescriptors()
      try check(cposix_try_threads(threadCount), "pthread_create", "a thread")
      let fired = DispatchSemaphore(value: 0)
      DispatchQueue(label: "first timer").asyncAfter(deadline: .now() + .milliseconds(1)) { fired.signal() }
      fired.wait()
      isReady = true
    }
  }

  private static func checkDescriptors() throws(IOFailure) {
    var descriptors: [Int32] = []
    defer { for descriptor in descriptors { close(descriptor) } }
    while descriptors.count < descriptorCount {
      let descriptor = cposix_open_directory(AT_FDCWD, "/", 1)
      guard descriptor >= 0 else { throw IOFailure("open", "a timer", errno: -descriptor) }
      descriptors.append(descriptor)
    }
  }
}
