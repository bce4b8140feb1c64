package import PushWire

/// How long a device waits before it connects again. Source: PUSH-PROTOCOL.md, *Connecting again*.
package struct ReconnectDelay: Sendable {
  static let longest = 60.0
  static let base = 0.5
  static let hopeless = 3600.0

  private var failures = 0

  package init() {}

  package mutating func succeeded() { failures = 0 }

  /// Seconds after a connection that could not be made or was lost.
  package mutating func afterLoss(using generator: inout some RandomNumberGenerator) -> Double {
    failures += 1
    let bound = failures > 10 ? Self.longest : min(Self.longest, Self.base * Double(1 << failures))
    return Double.random(in: 0...bound, using: &generator)
  }

  /// Seconds after a goodbye of the relay.
  package mutating func after(
    _ reason: GoodbyeReason, retryAfterSeconds: UInt32, using generator: inout some RandomNumberGenerator
  ) -> Double {
    switch reason {
    case .version, .notAdmitted, .malformed:
      Self.hopeless + Double.random(in: 0...Self.hopeless, using: &generator)
    case .replaced, .slow, .silent, .full, .draining, .failed:
      max(1, Double(retryAfterSeconds))
        + Double.random(in: 0...max(1, Double(retryAfterSeconds)), using: &generator)
    }
  }
}
