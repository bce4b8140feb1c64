#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A time in UTC, split into calendar fields (gmtime).
struct CalendarTime {
  var year, month, day, hour, minute, second, millisecond: Int

  init(_ nanoseconds: Int64) {
    let parts = NativeTime.parts(nanoseconds)
    var seconds = time_t(parts.seconds)
    millisecond = parts.nanoseconds / 1_000_000
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
