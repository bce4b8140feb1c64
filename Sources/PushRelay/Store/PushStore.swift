package import Foundation
package import PushWire

/// Tokens, waiting events and waiting callbacks of a relay. One relay process owns a store.
///
/// A method that changes something returns when the change survives a power failure, and the changes of
/// concurrent calls may share one flush. Changes of one channel take effect in the order of the calls.
/// Every method throws ``StoreFailure`` when the store cannot be read or written; then nothing changed.
/// Times are milliseconds since 1970, UTC.
package protocol PushStore: Sendable {
  /// Opens a channel for a device: makes it, or finds what was made before.
  func open(_ request: OpenRequest) async throws -> OpenOutcome

  /// The channel of a token, by SHA-256 of the whole token. Nil if there is none.
  func channel(tokenHash: Data) async throws -> StoredChannel?

  /// The channel of a token, by SHA-256 of its last component. Nil if there is none.
  func channel(secretHash: Data) async throws -> StoredChannel?

  /// The channel whose token has this prefix. Nil if there is none.
  func channel(prefix: String) async throws -> StoredChannel?

  /// Replaces the callbacks of a channel. Returns whether the channel is open; else nothing is changed.
  func setCallbacks(_ callbacks: GNPRequest.Callbacks, of channel: ChannelNumber) async throws -> Bool

  /// Gives an event the next number of its channel, in one transaction with finding the channel.
  func append(_ request: AppendRequest) async throws -> AppendOutcome

  /// Ends a channel: after its waiting events comes `event`, and a waiting callback tells the back end.
  /// Returns nil if the channel has ended before.
  func end(_ channel: ChannelNumber, with event: ChannelEnd, now: Int64) async throws -> EventNumber?

  /// Deletes the events of channels up to a number of each. A channel whose last event is deleted is gone.
  func take(_ takes: [(channel: ChannelNumber, through: UInt64)], now: Int64) async throws

  /// The first events of a channel after `sequence` that have not expired: at most `count`, and at most
  /// `byteCount` bytes of bodies, but one if there is one.
  func events(
    of channel: ChannelNumber, after sequence: UInt64, count: Int, byteCount: Int, now: Int64
  ) async throws -> [StoredEvent]

  /// Notes that channels are connected.
  func touch(_ channels: [ChannelNumber], now: Int64) async throws

  /// Deletes expired events.
  func expire(now: Int64) async throws

  /// Deletes expired events and what is remembered of channels that ended long ago, and ends channels
  /// that were not connected since `abandonedBefore`. Of the calls that wait for one host, the oldest
  /// above `callsOfHost` are deleted.
  func sweep(now: Int64, abandonedBefore: Int64, endedBefore: Int64, callsOfHost: Int) async throws

  /// `isDisconnected` calls that are due: the one of each host that waits longest, without those to `hosts`
  /// and to `origins`.
  func dueCalls(
    now: Int64, count: Int, excludingHosts hosts: Set<String>, origins: Set<String>
  ) async throws -> [DisconnectCall]

  /// Deletes a call: it was answered, or its time is over.
  func finish(_ call: DisconnectCall) async throws

  /// A call has failed. It is repeated at `due`, after those that wait longer.
  func postpone(_ call: DisconnectCall, until due: Int64) async throws

  /// The sealed token of any channel. Nil if there is none.
  func anyToken() async throws -> Data?

  /// Sums for metrics.
  func totals() async throws -> StoreTotals

  /// Throws when the store cannot be read, or when a change could not be stored and another one of the size of
  /// a message cannot be stored either. Costs the same in a store of any size.
  func check() async throws
}

/// The store cannot be read or written.
package struct StoreFailure: Error, Sendable, CustomStringConvertible {
  package let description: String
}

/// SHA-256 of a device's secret.
package struct DeviceKey: Hashable, Sendable {
  /// Without a heap object, since there is one for each connection.
  private let words: SIMD4<UInt64>

  package init(hash: Data) {
    precondition(hash.count == 32, "SHA-256 has 32 bytes")
    words = hash.withUnsafeBytes { $0.loadUnaligned(as: SIMD4<UInt64>.self) }
  }

  package var hash: Data { withUnsafeBytes(of: words) { Data($0) } }
}

/// A channel in one relay's store. Never used again, also after the channel is gone.
package struct ChannelNumber: Hashable, Sendable {
  package let value: Int64

  package init(value: Int64) {
    self.value = value
  }
}

package struct StoredChannel: Equatable, Sendable {
  package enum State: Int, Sendable {
    case open = 0
    /// Its last event waits for the device.
    case ended = 1
    /// The device has taken its last event. Back ends still get an answer of their own.
    case gone = 2
  }

  package var number: ChannelNumber
  package var id: ChannelID
  package var prefix: String
  package var state: State
  /// Number of the last event; 0 before the first.
  package var last: UInt64
  /// The device has stored every event up to this number.
  package var taken: UInt64
  package var callbacks: GNPRequest.Callbacks
}

/// A token as the store keeps it.
package struct StoredToken: Equatable, Sendable {
  package var prefix: String
  package var tokenHash: Data
  package var secretHash: Data
  /// The whole token, encrypted. The store cannot read it.
  package var sealed: Data

  package init(prefix: String, tokenHash: Data, secretHash: Data, sealed: Data) {
    self.prefix = prefix
    self.tokenHash = tokenHash
    self.secretHash = secretHash
    self.sealed = sealed
  }
}

package struct OpenRequest: Sendable {
  package var device: DeviceKey
  package var channel: ChannelID
  /// The device has had the answer to an earlier `Open` of the channel.
  package var isKnown: Bool
  package var taken: UInt64
  /// Of the channel, if it has to be made.
  package var token: StoredToken
  package var channelsMax: Int
  package var now: Int64

  package init(
    device: DeviceKey, channel: ChannelID, isKnown: Bool, taken: UInt64, token: StoredToken, channelsMax: Int,
    now: Int64
  ) {
    self.device = device
    self.channel = channel
    self.isKnown = isKnown
    self.taken = taken
    self.token = token
    self.channelsMax = channelsMax
    self.now = now
  }
}

package enum OpenOutcome: Equatable, Sendable {
  /// With the sealed token.
  case opened(StoredChannel, token: Data)
  case failed(ChannelError)
}

/// Codes of errors that end a channel. Source: PUSH-PROTOCOL.md, *Codes*.
package enum ChannelError: UInt32, Sendable {
  case relayFailed = 500
  case stateLost = 502
  case tooManyChannels = 503
  case revoked = 504
  case abandoned = 506
}

/// The last event of a channel.
package enum ChannelEnd: Equatable, Sendable {
  case closed
  case error(ChannelError)

  package var event: ChannelEvent {
    switch self {
    case .closed: .closed
    case .error(let error): .error(error.rawValue)
    }
  }
}

package struct AppendRequest: Sendable {
  package enum Target: Sendable {
    case channel(ChannelNumber)
    /// SHA-256 of the last component of its token.
    case secret(hash: Data)
  }

  package var target: Target
  package var event: Event
  /// Events up to this number may have reached the device. Later ones of the same topic are replaced.
  package var sentThrough: UInt64
  /// An event that has expired at `now` gets a number and does not wait.
  package var expires: Int64
  package var waitingCountMax: Int
  package var waitingByteCountMax: Int
  package var now: Int64

  package enum Event: Equatable, Sendable {
    case message(PushMessage)
    /// Takes the place of a failed ping that was not sent.
    case pingFailed(UInt32)
  }

  package init(
    target: Target, event: Event, sentThrough: UInt64, expires: Int64, waitingCountMax: Int,
    waitingByteCountMax: Int, now: Int64
  ) {
    self.target = target
    self.event = event
    self.sentThrough = sentThrough
    self.expires = expires
    self.waitingCountMax = waitingCountMax
    self.waitingByteCountMax = waitingByteCountMax
    self.now = now
  }
}

package enum AppendOutcome: Equatable, Sendable {
  case stored(ChannelNumber, EventNumber)
  /// As many events or bytes wait for the device as may.
  case full
  case ended
  /// There is no such channel.
  case unknown
}

/// Numbers of a channel grow, and follow the clock: one that a store has given is not given again after
/// the store was put back from a copy.
package struct EventNumber: Equatable, Sendable {
  package let sequence: UInt64
  /// Number of the event before it; 0 for the first.
  package let previous: UInt64

  /// The next number of a channel.
  package init(after previous: UInt64, now: Int64) {
    self.previous = previous
    let microseconds = UInt64(clamping: now).multipliedReportingOverflow(by: 1000)
    sequence = max(previous + 1, microseconds.overflow ? .max : microseconds.partialValue)
  }
}

package struct StoredEvent: Equatable, Sendable {
  package var sequence: UInt64
  package var event: ChannelEvent
}

/// An `isDisconnected` call that waits.
package struct DisconnectCall: Equatable, Sendable {
  package var id: Int64
  package var url: String
  package var host: String
  package var origin: String
  package var sealedToken: Data
  /// Calls that have failed so far.
  package var attempts: Int
  package var created: Int64
}

package struct StoreTotals: Equatable, Sendable {
  package var openChannels: Int
  /// Ended ones included.
  package var channels: Int
  package var waitingEvents: Int
  package var waitingBytes: Int
  package var waitingCalls: Int
}
