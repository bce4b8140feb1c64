#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The state of a lock that only serialises work and protects no value.
///
/// Not `Void`: a field without bytes has the address of the object's header, and the thread
/// sanitizer reports accesses to it as a race.
package struct OneAtATime: Sendable {
  private var filler: UInt8 = 0

  package init() {}
}

/// A value protected by a lock: one thread at a time has access to it.
///
/// `Synchronization.Mutex` requires results that leave the closure to be `sending`. Making the
/// catalog's values and typed errors so is not worth the effort. Not reentrant.
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

  /// Runs `body` as ``withLock(_:)`` does, but returns nil at once when a thread holds the lock,
  /// even if it is the calling thread.
  package func withLockIfFree<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R? {
    guard pthread_mutex_trylock(mutex) == 0 else { return nil }
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value)
  }
}
