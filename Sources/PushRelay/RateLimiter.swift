internal import Locks

/// Token buckets by key: each holds `burst` and is filled again with `rate` a second.
///
/// The table has a bound. When it is full of keys whose buckets are not full again, all further keys share
/// one bucket: whoever makes up keys competes with others who do.
package final class RateLimiter<Key: Hashable & Sendable>: Sendable {
  private struct Bucket: Sendable {
    var level: Double
    var time: Int64
  }

  private struct State: Sendable {
    var buckets: [Key: Bucket] = [:]
    var shared: Bucket?
    var lastSweep: Int64?
  }

  private let rate: Double
  private let burst: Double
  private let countMax: Int
  private let state = Guarded(State())

  package init(rate: Double, burst: Double, countMax: Int = 100_000) {
    self.rate = rate
    self.burst = burst
    self.countMax = countMax
  }

  /// Takes one from the bucket, if there is one.
  package func allows(_ key: Key, now: Int64) -> Bool {
    state.withLock { state in
      let bucket = state.buckets[key] ?? (isFull(&state, now: now) ? state.shared : nil)
      let level = level(of: bucket, now: now)
      guard level >= 1 else { return false }
      set(Bucket(level: level - 1, time: now), key, &state)
      return true
    }
  }

  /// Whether there is one in the bucket. Makes no bucket for a key that may not exist.
  package func wouldAllow(_ key: Key, now: Int64) -> Bool {
    state.withLock { state in
      level(of: state.buckets[key] ?? (isFull(&state, now: now) ? state.shared : nil), now: now) >= 1
    }
  }

  /// Takes one from the bucket, also the last one and more, for what was allowed before.
  package func charge(_ key: Key, now: Int64) {
    state.withLock { state in
      let bucket = state.buckets[key] ?? (isFull(&state, now: now) ? state.shared : nil)
      set(Bucket(level: max(-burst, level(of: bucket, now: now) - 1), time: now), key, &state)
    }
  }

  /// Forgets the keys whose buckets are full again.
  package func sweep(now: Int64) {
    state.withLock { sweep(&$0, now: now) }
  }

  package var count: Int { state.withLock { $0.buckets.count } }

  private func set(_ bucket: Bucket, _ key: Key, _ state: inout State) {
    if state.buckets[key] != nil || state.buckets.count < countMax {
      state.buckets[key] = bucket
    } else {
      state.shared = bucket
    }
  }

  private func isFull(_ state: inout State, now: Int64) -> Bool {
    guard state.buckets.count >= countMax else { return false }
    // A sweep looks at the whole table, so it waits for a second.
    if state.lastSweep.map({ now < $0 || now - $0 >= 1000 }) ?? true { sweep(&state, now: now) }
    return state.buckets.count >= countMax
  }

  private func sweep(_ state: inout State, now: Int64) {
    state.lastSweep = now
    state.buckets = state.buckets.filter { level(of: $0.value, now: now) < burst }
  }

  private func level(of bucket: Bucket?, now: Int64) -> Double {
    guard let bucket else { return burst }
    return min(burst, bucket.level + Double(max(0, now - bucket.time)) / 1000 * rate)
  }
}
