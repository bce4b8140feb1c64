/// Conversion between the system's times, in seconds and nanoseconds, and the container's: signed
/// 64-bit nanoseconds since 1970-01-01 UTC, which range from 1677 to 2262.
package enum NativeTime {
  private static let nanosecondsPerSecond: Int64 = 1_000_000_000

  /// A time in nanoseconds. Times outside the 64-bit range become the nearest one inside it.
  package static func nanoseconds(seconds: Int, nanoseconds: Int) -> Int64 {
    // The earliest time lies within second -9223372037, but that second times 10^9 overflows.
    // Negative times are therefore counted back from the next whole second.
    let (whole, rest) =
      seconds < 0
      ? (Int64(seconds) + 1, Int64(nanoseconds) - nanosecondsPerSecond) : (Int64(seconds), Int64(nanoseconds))
    let product = whole.multipliedReportingOverflow(by: nanosecondsPerSecond)
    let sum = product.partialValue.addingReportingOverflow(rest)
    return product.overflow || sum.overflow ? (seconds < 0 ? .min : .max) : sum.partialValue
  }

  /// Whole seconds, rounded down, and the remaining 0 to 999,999,999 nanoseconds.
  package static func parts(_ nanoseconds: Int64) -> (seconds: Int, nanoseconds: Int) {
    let (quotient, remainder) = nanoseconds.quotientAndRemainder(dividingBy: nanosecondsPerSecond)
    return remainder < 0
      ? (Int(quotient) - 1, Int(remainder + nanosecondsPerSecond)) : (Int(quotient), Int(remainder))
  }
}
