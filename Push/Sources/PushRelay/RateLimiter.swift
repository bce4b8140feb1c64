internal import Synchronization

/// Token buckets by key: each holds `burst` and is filled again with `rate` a second.
package final class RateLimiter<Key: Hashable & Sendable>: Sendable {
  private struct Bucket: Sendable {
    var level: Double
    var time: Int64
  }

  private let rate: Double
  private let burst: Double
  private let buckets = Mutex<[Key: Bucket]>([:])

  package init(rate: Double, burst: Double) {
    self.rate = rate
    self.burst = burst
  }

  /// Takes one from the bucket, if there is one.
  package func allows(_ key: Key, now: Int64) -> Bool {
    buckets.withLock { buckets in
      let bucket = buckets[key] ?? Bucket(level: burst, time: now)
      let level = level(of: bucket, now: now)
      guard level >= 1 else { return false }
      buckets[key] = Bucket(level: level - 1, time: now)
      return true
    }
  }

  /// Forgets the keys whose buckets are full again.
  package func sweep(now: Int64) {
    buckets.withLock { buckets in
      buckets = buckets.filter { level(of: $0.value, now: now) < burst }
    }
  }

  private func level(of bucket: Bucket, now: Int64) -> Double {
    min(burst, bucket.level + Double(max(0, now - bucket.time)) / 1000 * rate)
  }
}
