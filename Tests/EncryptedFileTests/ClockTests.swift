import Testing

@testable import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

struct ClockTests {
  @Test func aTimeBeyond64BitsIsTheLatest() {
    let latest = Clock.latest
    let (seconds, rest) = (Int(latest / 1_000_000_000), Int(latest % 1_000_000_000))
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest - 1)) == latest - 1)
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest + 1)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: .max, tv_nsec: 999_999_999)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: .min, tv_nsec: 0)) == .min)
    #expect(Clock.nanoseconds(timespec(tv_sec: 1, tv_nsec: 2)) == 1_000_000_002)
  }
}
