import Foundation

/// The amount that is tried by tests that draw samples: few in each run of all tests; more with `OPENDYNAMICS_EFFORT=long`, in
/// one of the parts of `.ci/run`; and with `OPENDYNAMICS_EFFORT=all` everything that can be tried, by hand.
package enum TestEffort: String, Comparable {
  case short, long, all

  package static let current =
    ProcessInfo.processInfo.environment["OPENDYNAMICS_EFFORT"].map {
      guard let effort = TestEffort(rawValue: $0) else {
        fatalError("OPENDYNAMICS_EFFORT is short, long or all, and not \($0)")
      }
      return effort
    } ?? .short

  package static func < (one: TestEffort, other: TestEffort) -> Bool { one.rank < other.rank }

  private var rank: Int {
    switch self {
    case .short: 0
    case .long: 1
    case .all: 2
    }
  }

  package static func count(_ short: Int, long: Int, all: Int? = nil) -> Int {
    switch current {
    case .short: short
    case .long: long
    case .all: all ?? long
    }
  }

  /// In the short form one of `n` elements, beginning at another one in each run; else all.
  package static func oneIn<Element>(_ n: Int, of elements: [Element]) -> [Element] {
    guard current == .short, !elements.isEmpty else { return elements }
    return stride(from: .random(in: 0..<min(n, elements.count)), to: elements.count, by: n).map {
      elements[$0]
    }
  }
}
