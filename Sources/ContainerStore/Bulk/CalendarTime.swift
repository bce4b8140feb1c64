#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A moment in UTC, taken apart (gmtime).
struct CalendarTime {
  var year, month, day, hour, minute, second, millisecond: Int

  init(_ nanoseconds: Int64) {
    let (quotient, remainder) = nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
    var seconds = time_t(remainder < 0 ? quotient - 1 : quotient)
    millisecond = Int(remainder < 0 ? remainder + 1_000_000_000 : remainder) / 1_000_000
    var fields = tm()
    gmtime_r(&seconds, &fields)
    year = Int(fields.tm_year) + 1900
    month = Int(fields.tm_mon) + 1
    day = Int(fields.tm_mday)
    hour = Int(fields.tm_hour)
    minute = Int(fields.tm_min)
    second = Int(fields.tm_sec)
  }
}
