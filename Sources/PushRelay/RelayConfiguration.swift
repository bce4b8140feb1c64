package import PushWire

/// What an operator sets. The names are those of PUSH-PROTOCOL.md, *Limits*.
package struct RelayConfiguration: Sendable {
  package var name = RelayName.local
  /// What back ends have to use, if it is not the name by which devices know the relay.
  package var regionalHost: String?
  /// Keys of which a device must have one. Nil admits every device.
  package var admissionKeys: Set<String>?
  package var callbackNetworks: [Network] = []
  /// PEM file of authorities for callbacks, besides the system's.
  package var callbackAuthorities: String?

  package var hub = Hub.Limits()
  package var heartbeatSecondsMax: UInt32 = 3600
  package var greetingTime: Int64 = 10_000
  package var channelsOfDevice = 256
  package var channelsMax = 1_000_000
  package var devices = 20_000
  package var newConnections = 1024
  package var unsentBytes = 256 << 20
  package var requestsOfConnection = 16

  package var waitingEvents = 1000
  package var waitingBytes = 16 << 20
  package var waitingBytesOfRelay = 4 << 30
  package var tokenRate = 100.0
  package var tokenBurst = 1000.0
  package var addressRate = 5000.0
  package var newChannelsOfDevice = 60.0
  package var newChannelsOfAddress = 600.0
  package var notifyTimeToLive: Int64 = 7 * day
  package var abandonedTime: Int64 = 7 * day
  package var endedTime: Int64 = 28 * day

  package var pingInterval: Int64 = 15 * 60_000
  package var pingBatch = 16 << 10
  package var callbackTime: Int64 = 10_000
  package var callbackBytes = 64 << 10
  package var callbackLife: Int64 = 7 * day
  package var callbacksAtOnce = 64
  package var waitingCallsOfHost = 10_000

  package var connections = 4096
  package var connectionsOfAddress = 256
  package var idleSeconds: Int64 = 60
  package var bodySeconds: Int64 = 30
  package var headBytes = 16 << 10
  package var bodyBytesAtOnce = 64 << 20
  /// Of them, those of one address.
  package var bodyBytesOfAddress = 16 << 20
  /// How long a relay that stops waits for requests under way.
  package var drainTime: Int64 = 5_000

  /// How often the loops are asked whether they are late; 0 for never.
  package var loopProbeMilliseconds: Int64 = 0

  package static let day: Int64 = 86_400_000

  package init() {}

  /// The values that a setting may have. Sums and products of all of them are numbers that fit.
  package static func range(ofSetting name: String) -> ClosedRange<Int> {
    let least = mayBeZero.contains(name) ? 0 : 1
    if name.hasSuffix("Milliseconds") { return least...3_600_000 }
    if name.hasSuffix("Seconds") { return least...1_000_000_000 }
    if name.contains("ytes") { return least...(1 << 50) }
    return least...1_000_000_000
  }

  /// Throws for a value outside ``range(ofSetting:)``.
  package static func check(_ value: Int, ofSetting name: String) throws {
    let range = range(ofSetting: name)
    guard range.contains(value) else {
      throw SettingFailure(
        description: "\(name) is \(value), and must be from \(range.lowerBound) to \(range.upperBound)")
    }
  }

  private static let mayBeZero: Set = [
    "tokenRate", "tokenBurst", "newChannelsOfDevice", "newChannelsOfAddress", "waitingEvents", "waitingBytes",
    "waitingBytesOfRelay", "waitingCallbacksOfHost", "notifySeconds", "abandonedSeconds", "endedSeconds",
    "callbackLifeSeconds", "loopProbeMilliseconds",
  ]
}

/// A setting has a value that it cannot have.
package struct SettingFailure: Error, CustomStringConvertible {
  package let description: String
}
