import Foundation
import OpenDynamicsTesting

extension SplitMix64 {
  /// A number in 0..<bound, with a bias that does not matter to a test.
  mutating func below(_ bound: Int) -> Int { Int(truncatingIfNeeded: next() % UInt64(bound)) }

  mutating func oneIn(_ n: Int) -> Bool { below(n) == 0 }

  /// The seed of all random tests: fixed, or `OPENDYNAMICS_TEST_SEED` (decimal) to look elsewhere or to repeat a failure.
  static let testSeed: UInt64 =
    ProcessInfo.processInfo.environment["OPENDYNAMICS_TEST_SEED"].flatMap { UInt64($0) } ?? 20_250_601
}
