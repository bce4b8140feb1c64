import Foundation
import Testing

@testable import ServiceWire

struct DeliveryTests {
  /// A seed that failed is printed, and goes in here.
  private static let failedBefore: [UInt64] = []

  private static func problems(seed: UInt64, sentCount: Int, breaks: Bool) -> [String] {
    var limits = DeliveryLimits()
    limits.sentCountMax = sentCount
    limits.receivedCountMax = sentCount
    limits.pageFileCountMax = 3
    limits.creditFrameCount = 4
    limits.progressFrameCount = 2
    limits.inquiryCountMax = 2
    let world = DeliveryWorld(seed: seed, limits: limits)
    world.breaks = breaks
    for _ in 0..<500 { world.step() }
    world.settle()
    if !world.problems.isEmpty { print(world.trace.joined(separator: "\n")) }
    return world.problems
  }

  @Test func anyOrderOfEventsKeepsThePromises() {
    for seed in Self.failedBefore + ExchangeTests.seeds {
      for sentCount in [1, 2, 8] {
        for breaks in [false, true] {
          let problems = Self.problems(seed: seed, sentCount: sentCount, breaks: breaks)
          #expect(problems.isEmpty, "seed \(seed), \(sentCount) at once, breaks \(breaks)")
          if !problems.isEmpty { return }
        }
      }
    }
  }
}
