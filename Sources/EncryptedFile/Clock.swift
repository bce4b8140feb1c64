#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The clocks of this machine: dates of files, hedges of random bytes, and signs of a clone.
public enum Clock {
  /// The latest time that is returned: 11 days before the end of 64 bits, so that a short interval
  /// can be added to it.
  static let latest = Int64.max - 1_000_000_000_000_000

  /// Nanoseconds since 1970-01-01 UTC, until 2262-03-30; from then on that moment.
  public static func wallNanoseconds() -> Int64 { read(CLOCK_REALTIME) }
  public static func monotonicNanoseconds() -> Int64 { read(CLOCK_MONOTONIC) }
  /// Nanoseconds since the machine was started, sleep included. Setting the wall clock does not
  /// move it.
  public static func bootNanoseconds() -> Int64 {
    #if canImport(Darwin)
      read(CLOCK_MONOTONIC_RAW)
    #else
      read(CLOCK_BOOTTIME)
    #endif
  }

  private static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return nanoseconds(time)
  }

  static func nanoseconds(_ time: timespec) -> Int64 {
    let (product, overflows) = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    let (sum, exceeds) = product.addingReportingOverflow(Int64(time.tv_nsec))
    return overflows || exceeds ? (time.tv_sec < 0 ? .min : latest) : min(sum, latest)
  }
}
