import CPosix
import Dispatch

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The timers of libdispatch, which ends the process when it has no descriptor left for the first of them.
enum DispatchTimers {
  /// An epoll, an event and a timer descriptor, and some that other threads open meanwhile.
  private static let descriptorCount = 8
  private static let isReady = Guarded(false)

  /// Has libdispatch open what it needs, once in a process. Throws with `EMFILE` or `ENFILE` when there is not enough.
  static func prepare() throws(IOFailure) {
    try isReady.withLock { isReady throws(IOFailure) in
      if isReady { return }
      try checkDescriptors()
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
      let descriptor = cposix_open_directory("/", 1)
      guard descriptor >= 0 else { throw IOFailure("open", "a timer", errno: -descriptor) }
      descriptors.append(descriptor)
    }
  }
}
