public import SodiumPrimitives
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The cipher and the two unit buffers of one thread. The buffers are wiped on release.
public final class WorkerContext {
  public let cipher: SegmentCipher
  public let input: UnsafeMutableRawBufferPointer
  public let output: UnsafeMutableRawBufferPointer

  /// A unit as it is stored, rounded up to pages.
  public static let bufferByteCount =
    (SegmentLayout.segmentsPerUnit * SegmentLayout.storedByteCountMax + 4095) / 4096 * 4096

  public init(_ backend: CipherBackend, in pool: KeyPool = .shared) {
    cipher = SegmentCipher(backend, in: pool)
    input = .allocate(byteCount: Self.bufferByteCount, alignment: 4096)
    output = .allocate(byteCount: Self.bufferByteCount, alignment: 4096)
  }

  deinit {
    for buffer in [input, output] {
      wipe(buffer)
      buffer.deallocate()
    }
  }
}

/// A fixed set of threads for sealing, opening and blocking I/O, none of which may run on the
/// cooperative pool.
///
/// ``forEach(_:poll:_:)`` blocks until its job is done; ``begin(_:)`` does not, and its callers limit how
/// many jobs they have begun. Threads start with the first job and end with ``stop()``.
public final class WorkerThreads: @unchecked Sendable {
  // Invariant: `jobs`, `threads`, `isStopping` and every field of a Job are touched only with
  // `mutex` held, except for `body`, which is constant.
  fileprivate final class Job {
    let body: @Sendable (WorkerContext, Int) throws -> Void
    let count: Int
    var next = 0
    var running = 0
    var failure: (any Error)?
    /// Whether no call of ``forEach(_:poll:_:)`` waits for the job; a worker then removes it from
    /// the queue.
    let isDetached: Bool
    var isFinished: Bool { running == 0 && (next == count || failure != nil) }

    init(
      count: Int, isDetached: Bool = false, body: @escaping @Sendable (WorkerContext, Int) throws -> Void
    ) {
      self.count = count
      self.isDetached = isDetached
      self.body = body
    }
  }

  public let count: Int
  private let backend: CipherBackend
  private let pool: KeyPool
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let changed: UnsafeMutablePointer<pthread_cond_t>
  private var jobs: [Job] = []
  private var threads: [pthread_t] = []
  private var isStopping = false
  /// Whether the last piece of work was of a detached job.
  private var wasDetached = false

  /// `pool`: that of the keys which the threads seal with.
  public init(count: Int, backend: CipherBackend = .preferred, in pool: KeyPool = .shared) {
    precondition(count >= 1, "at least one thread works")
    self.count = count
    self.backend = backend
    self.pool = pool
    mutex = .allocate(capacity: 1)
    changed = .allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(changed, nil)
  }

  deinit {
    precondition(threads.isEmpty, "stop() was called before the last reference went")
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(mutex)
    changed.deallocate()
    mutex.deallocate()
  }

  /// Runs `body` for every index below `count`, in parallel, begun in order, and returns when all
  /// have ended.
  ///
  /// The first error stops the rest and is thrown. `poll` runs on the calling thread some twenty
  /// times a second; what it throws stops the job in the same way.
  public func forEach(
    _ count: Int, poll: (() throws -> Void)? = nil,
    _ body: @escaping @Sendable (WorkerContext, Int) throws -> Void
  ) throws {
    guard count > 0 else { return }
    let job = Job(count: count, body: body)
    pthread_mutex_lock(mutex)
    waitWhileStopping()
    guard startThreads() else {
      pthread_mutex_unlock(mutex)
      return try workAlone(count, poll: poll, body)
    }
    jobs.append(job)
    pthread_cond_broadcast(changed)
    while !job.isFinished {
      guard let poll else {
        pthread_cond_wait(changed, mutex)
        continue
      }
      waitBriefly()
      pthread_mutex_unlock(mutex)
      let stop = Result { try poll() }
      pthread_mutex_lock(mutex)
      if case .failure(let error) = stop, job.failure == nil { job.failure = error }
    }
    jobs.removeAll { $0 === job }
    let failure = job.failure
    pthread_mutex_unlock(mutex)
    if let failure { throw failure }
  }

  /// A handle to a detached job.
  public struct Ticket: @unchecked Sendable {
    // Invariant: the job's fields are touched only with the mutex of its threads held.
    fileprivate let job: Job
  }

  /// Has `body` run once, as soon as a thread is free, and returns at once. ``stop()`` waits for
  /// it.
  public func begin(_ body: @escaping @Sendable (WorkerContext) -> Void) -> Ticket {
    let job = Job(count: 1, isDetached: true) { context, _ in body(context) }
    pthread_mutex_lock(mutex)
    waitWhileStopping()
    guard startThreads() else {
      pthread_mutex_unlock(mutex)
      body(WorkerContext(backend, in: pool))
      job.next = job.count
      return Ticket(job: job)
    }
    jobs.append(job)
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
    return Ticket(job: job)
  }

  /// Returns when the work has ended.
  public func wait(for ticket: Ticket) {
    pthread_mutex_lock(mutex)
    while !ticket.job.isFinished { pthread_cond_wait(changed, mutex) }
    pthread_mutex_unlock(mutex)
  }

  /// Whether the work has ended.
  public func isFinished(_ ticket: Ticket) -> Bool {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return ticket.job.isFinished
  }

  /// Finishes all queued jobs, then joins the threads and wipes their buffers. A later job starts
  /// them anew.
  public func stop() {
    pthread_mutex_lock(mutex)
    waitWhileStopping()
    let ending = threads
    threads = []
    isStopping = true
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
    for thread in ending { pthread_join(thread, nil) }
    pthread_mutex_lock(mutex)
    isStopping = false
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
  }

  private func waitWhileStopping() {
    while isStopping { pthread_cond_wait(changed, mutex) }
  }

  private func waitBriefly() {
    var deadline = timespec()
    clock_gettime(CLOCK_REALTIME, &deadline)
    deadline.tv_nsec += 50_000_000
    if deadline.tv_nsec >= 1_000_000_000 {
      deadline.tv_nsec -= 1_000_000_000
      deadline.tv_sec += 1
    }
    pthread_cond_timedwait(changed, mutex, &deadline)
  }

  /// The work of a job on the calling thread, where the system gives no other.
  private func workAlone(
    _ count: Int, poll: (() throws -> Void)?, _ body: (WorkerContext, Int) throws -> Void
  ) throws {
    let context = WorkerContext(backend, in: pool)
    for index in 0..<count {
      try poll?()
      try body(context, index)
    }
  }

  /// Returns false when there is no thread. Fewer than wanted do the same work.
  private func startThreads() -> Bool {
    while threads.count < count {
      let retained = Unmanaged.passRetained(self)
      #if canImport(Darwin)
        var thread: pthread_t?
      #else
        var thread = pthread_t()
      #endif
      let status = pthread_create(&thread, nil, threadMain, retained.toOpaque())
      guard status == 0 else {
        retained.release()
        break
      }
      #if canImport(Darwin)
        threads.append(thread!)
      #else
        threads.append(thread)
      #endif
    }
    return !threads.isEmpty
  }

  /// Detached jobs take turns with the others, so that neither a large job nor many detached ones
  /// delay the other kind.
  private var nextJob: Job? {
    let open = jobs.lazy.filter { $0.next < $0.count && $0.failure == nil }
    return open.first { $0.isDetached != self.wasDetached } ?? open.first
  }

  fileprivate func work() {
    let context = WorkerContext(backend, in: pool)
    pthread_mutex_lock(mutex)
    while true {
      guard let job = nextJob else {
        // Only now: callers wait for the jobs that are there.
        if isStopping { break }
        pthread_cond_wait(changed, mutex)
        continue
      }
      wasDetached = job.isDetached
      let index = job.next
      job.next += 1
      job.running += 1
      pthread_mutex_unlock(mutex)
      let outcome = Result { try job.body(context, index) }
      pthread_mutex_lock(mutex)
      job.running -= 1
      if case .failure(let error) = outcome, job.failure == nil { job.failure = error }
      if job.isFinished {
        if job.isDetached { jobs.removeAll { $0 === job } }
        pthread_cond_broadcast(changed)
      }
    }
    pthread_mutex_unlock(mutex)
  }
}

#if canImport(Darwin)
  private func threadMain(_ argument: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
    Unmanaged<WorkerThreads>.fromOpaque(argument).takeRetainedValue().work()
    return nil
  }
#else
  private func threadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    Unmanaged<WorkerThreads>.fromOpaque(argument!).takeRetainedValue().work()  // passed by startThreads
    return nil
  }
#endif
