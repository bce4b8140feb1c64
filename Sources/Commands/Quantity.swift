import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Amounts and dates as people read them, without the weight of a formatter.
enum Quantity {
  /// `17 B`, `1.5 KiB`, `4.0 GiB`: powers of 1024.
  static func bytes(_ count: Double) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    var value = max(0, count)
    var unit = 0
    // Rounding must not give "1024.0 KiB".
    while value >= (unit == 0 ? 1023.5 : 1023.95), unit < units.count - 1 {
      value /= 1024
      unit += 1
    }
    return (unit == 0 ? String(Int(value.rounded())) : decimal(value, digits: 1)) + " " + units[unit]
  }

  static func bytes(_ count: UInt64) -> String { bytes(Double(count)) }

  /// `17B`, `1.5KiB`: without a blank, for columns.
  static func compactBytes(_ count: UInt64) -> String { bytes(count).split(separator: " ").joined() }

  static func rate(_ bytesPerSecond: Double) -> String { bytes(bytesPerSecond) + "/s" }

  static func decimal(_ value: Double, digits: Int) -> String {
    let scale = Int(pow(10, Double(digits)))
    let scaled = Int((value * Double(scale)).rounded())
    guard digits > 0 else { return String(scaled) }
    return "\(scaled / scale)." + padded(String(scaled % scale), digits)
  }

  /// `0:05`, `12:34`, `1:02:03`.
  static func duration(seconds: Double) -> String {
    let total = Int(min(max(0, seconds.rounded(.up)), 359_999))
    let minutes = padded(String(total / 60 % 60), total >= 3600 ? 2 : 1)
    return (total >= 3600 ? "\(total / 3600):" : "") + minutes + ":" + padded(String(total % 60), 2)
  }

  static func count(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

  /// RFC 3339 in UTC with nine digits of a second, or none.
  static func timestamp(_ nanoseconds: Int64, withFraction: Bool = true) -> String {
    let (whole, fraction) = NativeTime.parts(nanoseconds)
    var seconds = time_t(whole)
    var fields = tm()
    gmtime_r(&seconds, &fields)
    func two(_ number: Int32) -> String { padded(String(number), 2) }
    let date =
      padded(String(Int(fields.tm_year) + 1900), 4) + "-" + two(fields.tm_mon + 1) + "-" + two(fields.tm_mday)
    let time = two(fields.tm_hour) + ":" + two(fields.tm_min) + ":" + two(fields.tm_sec)
    return date + "T" + time + (withFraction ? "." + padded(String(fraction), 9) : "") + "Z"
  }

  private static func padded(_ digits: String, _ width: Int) -> String {
    String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
  }
}
