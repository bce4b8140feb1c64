import Foundation

extension Date {
  /// 2001-01-01 UTC, where Foundation's dates begin.
  private static let referenceSeconds: Int64 = 978_307_200
  private static let nanosecondsPerSecond: Int64 = 1_000_000_000

  /// The nearest date that a `Double` holds: it is some hundred nanoseconds fine today.
  init(nanoseconds: Int64) {
    let (seconds, rest) = nanoseconds.quotientAndRemainder(dividingBy: Self.nanosecondsPerSecond)
    self.init(
      timeIntervalSinceReferenceDate: Double(seconds - Self.referenceSeconds)
        + Double(rest) / Double(Self.nanosecondsPerSecond))
  }

  /// The nearest that 64 bits hold, which reach from 1677 to 2262; nil for a date that is not finite.
  var nanoseconds: Int64? {
    guard timeIntervalSinceReferenceDate.isFinite else { return nil }
    let whole = timeIntervalSinceReferenceDate.rounded(.down)
    let rest = ((timeIntervalSinceReferenceDate - whole) * Double(Self.nanosecondsPerSecond)).rounded()
    guard let seconds = Int64(exactly: whole)?.addingReportingOverflow(Self.referenceSeconds),
      !seconds.overflow
    else { return whole < 0 ? .min : .max }
    let product = seconds.partialValue.multipliedReportingOverflow(by: Self.nanosecondsPerSecond)
    let sum = product.partialValue.addingReportingOverflow(Int64(rest))
    guard !product.overflow, !sum.overflow else { return seconds.partialValue < 0 ? .min : .max }
    return sum.partialValue
  }
}
