import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A thread that may block, and that nobody waits for. Foundation's does not say when the system gives none.
package enum DetachedThread {
  /// Starts it. Its name is cut at 15 bytes, where the system takes no more.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``: the process, or the user, has as many threads as it may have.
  package static func start(
    _ name: String, stackByteCount: Int = 1 << 20, _ body: @escaping @Sendable () -> Void
  ) throws(SocketError) {
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    pthread_attr_setstacksize(&attributes, stackByteCount)
    let work = Unmanaged.passRetained(Work(name, body))
    #if canImport(Darwin)
      var thread: pthread_t?
    #else
      var thread = pthread_t()
    #endif
    let status = pthread_create(&thread, &attributes, threadMain, work.toOpaque())
    guard status == 0 else {
      work.release()
      throw .callFailed(operation: "pthread_create", path: nil, errno: status)
    }
  }

  fileprivate final class Work: Sendable {
    private let name: String
    private let body: @Sendable () -> Void

    init(_ name: String, _ body: @escaping @Sendable () -> Void) {
      self.name = name
      self.body = body
    }

    func run() {
      cposix_name_thread(name)
      #if canImport(Darwin)
        autoreleasepool { body() }
      #else
        body()
      #endif
    }
  }
}

#if canImport(Darwin)
  private func threadMain(_ work: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
    Unmanaged<DetachedThread.Work>.fromOpaque(work).takeRetainedValue().run()
    return nil
  }
#else
  private func threadMain(_ work: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let work { Unmanaged<DetachedThread.Work>.fromOpaque(work).takeRetainedValue().run() }
    return nil
  }
#endif
