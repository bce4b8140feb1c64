import Testing

@testable import ContainerStore

struct NativeTimeTests {
  @Test(
    arguments: [
      (0, 0, 0), (1, 5, 1_000_000_005), (-1, 999_999_999, -1), (-2, 1, -1_999_999_999),
      (9_223_372_036, 854_775_807, .max), (9_223_372_036, 854_775_808, .max), (10_413_792_000, 0, .max),
      (.max, 999_999_999, .max), (-9_223_372_037, 145_224_192, .min), (-9_223_372_037, 145_224_191, .min),
      (-14_831_769_600, 0, .min), (.min, 0, .min),
    ] as [(Int, Int, Int64)])
  func comesAsNearAsItCan(seconds: Int, nanoseconds: Int, time: Int64) {
    #expect(NativeTime.nanoseconds(seconds: seconds, nanoseconds: nanoseconds) == time)
  }

  @Test(arguments: [0, 1, -1, 1_000_000_000, -1_000_000_000, -1_000_000_001, .min, .max] as [Int64])
  func comesBack(time: Int64) {
    let parts = NativeTime.parts(time)
    #expect((0..<1_000_000_000).contains(parts.nanoseconds))
    #expect(NativeTime.nanoseconds(seconds: parts.seconds, nanoseconds: parts.nanoseconds) == time)
  }
}
