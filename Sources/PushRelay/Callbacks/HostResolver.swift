internal import Locks
internal import NIOCore
internal import NIOPosix

/// Resolves host names on threads of its own, since the system's look-up blocks and cannot be cancelled.
///
/// A look-up that hangs holds a thread until the system gives it up. So there is one look-up of a name at a
/// time, whose result all callers share, and the names of one domain have a part of the threads.
final class HostResolver: Sendable {
  private typealias Waiter = CheckedContinuation<[IPAddress], Never>

  private struct Lookup {
    var isRunning = false
    var waiters: [UInt64: Waiter] = [:]
  }

  private struct State {
    var lookups: [String: Lookup] = [:]
    /// Names whose look-up waits for a thread, the oldest first.
    var queue: [String] = []
    var runningOfDomain: [String: Int] = [:]
    var running = 0
    var nextWaiter: UInt64 = 0
    var isClosed = false
  }

  private static let threads = 32
  private static let threadsOfDomain = 8

  private let time: TimeAmount
  private let resolve: @Sendable (String) -> [IPAddress]
  private let pool = NIOThreadPool(numberOfThreads: HostResolver.threads)
  private let state = Guarded(State())

  /// `time` is how long a caller waits for a look-up that has begun.
  init(time: TimeAmount, resolve: @escaping @Sendable (String) -> [IPAddress]) {
    self.time = time
    self.resolve = resolve
    pool.start()
  }

  func close() {
    let waiters = state.withLock { state in
      state.isClosed = true
      let waiters = state.lookups.values.flatMap { $0.waiters.values }
      state.lookups = [:]
      state.queue = []
      return waiters
    }
    for waiter in waiters { waiter.resume(returning: []) }
    pool.shutdownGracefully { _ in }
  }

  /// All addresses of a host; none if it has none, or if they are not known in time.
  func addresses(of host: String) async -> [IPAddress] {
    await withCheckedContinuation { waiter in
      let id: UInt64? = state.withLock { state in
        guard !state.isClosed else { return nil }
        let id = state.nextWaiter
        state.nextWaiter += 1
        if state.lookups[host] == nil {
          state.lookups[host] = Lookup()
          state.queue.append(host)
        }
        state.lookups[host]!.waiters[id] = waiter
        return id
      }
      guard let id else { return waiter.resume(returning: []) }
      if state.withLock({ $0.lookups[host]?.isRunning ?? false }) { limit([id], of: host) }
      startNext()
    }
  }

  /// Begins the look-ups for which there are threads.
  private func startNext() {
    while true {
      let next: (host: String, waiters: [UInt64])? = state.withLock { state in
        guard !state.isClosed, state.running < Self.threads,
          let index = state.queue.firstIndex(where: { host in
            state.runningOfDomain[Self.domain(host), default: 0] < Self.threadsOfDomain
          })
        else { return nil }
        let host = state.queue.remove(at: index)
        state.running += 1
        state.runningOfDomain[Self.domain(host), default: 0] += 1
        state.lookups[host]!.isRunning = true
        return (host, Array(state.lookups[host]!.waiters.keys))
      }
      guard let next else { return }
      limit(next.waiters, of: next.host)
      pool.submit { [self] poolState in
        finish(next.host, poolState == .active ? resolve(next.host) : [])
      }
    }
  }

  /// Lets callers wait for *time* from now on.
  private func limit(_ ids: [UInt64], of host: String) {
    MultiThreadedEventLoopGroup.singleton.any().scheduleTask(in: time) { [weak self] in
      guard let self else { return }
      let late = state.withLock { state in
        ids.compactMap { state.lookups[host]?.waiters.removeValue(forKey: $0) }
      }
      for waiter in late { waiter.resume(returning: []) }
    }
  }

  private func finish(_ host: String, _ addresses: [IPAddress]) {
    let waiters = state.withLock { state in
      state.running -= 1
      let domain = Self.domain(host)
      state.runningOfDomain[domain]! -= 1
      if state.runningOfDomain[domain] == 0 { state.runningOfDomain[domain] = nil }
      return state.lookups.removeValue(forKey: host)?.waiters ?? [:]
    }
    for waiter in waiters.values { waiter.resume(returning: addresses) }
    startNext()
  }

  /// The last two labels of a name: whoever has these can make any number of names.
  private static func domain(_ host: String) -> String {
    host.split(separator: ".").suffix(2).joined(separator: ".")
  }
}
