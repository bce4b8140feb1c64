#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a lock guards that lets one thread at a time through some work and has no value of its own.
///
/// Not `Void`: a field without bytes has the address of the object's header, which the thread sanitizer takes for a race.
package struct OneAtATime: Sendable {
  private var filler: UInt8 = 0

  package init() {}
}

/// A value that one thread at a time may touch.
///
/// `Synchronization.Mutex` asks that what leaves the closure be `sending`, which a catalog's values and typed errors are not
/// worth. Not reentrant.
package final class Guarded<Value: ~Copyable>: @unchecked Sendable {
  // Invariant: `value` is touched only with `mutex` held.
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private var value: Value

  package init(_ value: consuming Value) {
    self.value = value
    mutex = .allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
  }

  deinit {
    pthread_mutex_destroy(mutex)
    mutex.deallocate()
  }

  package func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value)
  }

  /// The same, but nil at once when somebody has the lock, be it the calling thread.
  package func withLockIfFree<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R? {
    guard pthread_mutex_trylock(mutex) == 0 else { return nil }
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value)
  }
}
