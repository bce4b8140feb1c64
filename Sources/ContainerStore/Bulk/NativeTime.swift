/// Times as the system has them, in seconds and nanoseconds, and as the container does: signed 64-bit nanoseconds since 1970-01-01 UTC, which reach
/// from 1677 to 2262.
package enum NativeTime {
  private static let nanosecondsPerSecond: Int64 = 1_000_000_000

  /// The nearest there is for an earlier or a later time.
  package static func nanoseconds(seconds: Int, nanoseconds: Int) -> Int64 {
    // The second before the first whole one is none of 64 bits, and most of its nanoseconds are.
    let (whole, rest) =
      seconds < 0
      ? (Int64(seconds) + 1, Int64(nanoseconds) - nanosecondsPerSecond) : (Int64(seconds), Int64(nanoseconds))
    let product = whole.multipliedReportingOverflow(by: nanosecondsPerSecond)
    let sum = product.partialValue.addingReportingOverflow(rest)
    return product.overflow || sum.overflow ? (seconds < 0 ? .min : .max) : sum.partialValue
  }

  /// Whole seconds, rounded down, and 0 to 999,999,999 nanoseconds more.
  package static func parts(_ nanoseconds: Int64) -> (seconds: Int, nanoseconds: Int) {
    let (quotient, remainder) = nanoseconds.quotientAndRemainder(dividingBy: nanosecondsPerSecond)
    return remainder < 0
      ? (Int(quotient) - 1, Int(remainder + nanosecondsPerSecond)) : (Int(quotient), Int(remainder))
  }
}
