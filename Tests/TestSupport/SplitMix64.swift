import Foundation

/// A small generator of random numbers whose whole state is its seed (Steele, Lea, Flood 2014), so
/// that a failure can be repeated. Not for keys.
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  package init(seed: UInt64) { state = seed }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  /// A number in 0..<bound, with a bias that does not matter to a test.
  package mutating func below(_ bound: Int) -> Int { Int(truncatingIfNeeded: next() % UInt64(bound)) }

  package mutating func oneIn(_ n: Int) -> Bool { below(n) == 0 }

  /// The seed of random tests: fixed, or `OPENDYNAMICS_TEST_SEED` (decimal) to try other sequences or
  /// to repeat a failure.
  package static let testSeed: UInt64 =
    ProcessInfo.processInfo.environment["OPENDYNAMICS_TEST_SEED"].flatMap { UInt64($0) } ?? 20_250_601
}
