import Foundation

/// All requests between this app and one other, over the channels that they have one after another: the state machine of
/// SERVICE-PROTOCOL.md, "The channel". No socket, no clock, no thread: whoever owns it brings messages and the time, and does what comes out.
///
/// It never trusts a message: what may not come now closes the channel with a fault, and changes nothing else.
package struct Exchange: Sendable {
  package let ownAppID: String
  package let peerAppID: String
  package let process: WireID
  package let limits: ExchangeLimits

  var channels: [ChannelNumber: Channel] = [:]
  /// Where new requests go: the channel that was opened last.
  var newest: ChannelNumber?
  var isConnecting = false
  /// Waiting for a channel or for credit, oldest first; those that are no more in `outgoing` count for nothing.
  var queue: [WireID] = []
  var queueBegin = 0
  var queuedCount = 0
  var outgoing: [WireID: Outgoing] = [:]
  var incoming: [WireID: Incoming] = [:]

  struct Channel {
    let ticket: Data
    let opened: UInt64
    var lastHeard: UInt64
    var ping: UInt64?
    var peerProcess: WireID?
    /// Requests that we may send.
    var credit = 0
    /// Requests that the peer may send.
    var granted: Int
    var peerFrameByteCountMax = 0
    var peerAttachmentCountMax: UInt64 = 0
    /// Requests whose `Cancel` has no answer yet, which will make no difference: they had been accepted, or have ended.
    var settledCancels: Set<WireID> = []
    var isOpen: Bool { peerProcess != nil }
  }

  struct Outgoing {
    enum State: Equatable {
      case queued, sent, accepted
      case cancelling(accepted: Bool)
      /// The channel broke.
      case unknown(since: UInt64, wasAccepted: Bool, cancels: Bool)
    }

    var state: State
    var message: WireRequest?
    /// Where it was sent, and where its credit comes back.
    var channel: ChannelNumber?
    /// Where its answers come.
    var answerChannel: ChannelNumber?
    var peerProcess: WireID?
    /// Of the channels that it was sent over, or asked about.
    var tickets: [Data] = []
  }

  struct Incoming {
    enum State: Equatable {
      case arrived, queued, handling
      case replied(WireReply)
      case ended
    }

    var state: State = .arrived
    /// Where its answers go; nil when that broke.
    var channel: ChannelNumber?
    /// Where it took a credit.
    var creditChannel: ChannelNumber?
    /// When the channel broke.
    var brokenSince: UInt64 = 0
  }

  package static let versionMax: UInt32 = 1
  package static let ticketByteCount = 32

  package init(
    ownAppID: String, peerAppID: String, process: WireID, limits: ExchangeLimits = ExchangeLimits()
  ) {
    self.ownAppID = ownAppID
    self.peerAppID = peerAppID
    self.process = process
    self.limits = limits
  }

  // MARK: What is known

  package var openChannelCount: Int { channels.values.count { $0.isOpen } }
  package var channelCount: Int { channels.count }
  /// Requests of ours that have not ended.
  package var outgoingCount: Int { outgoing.count }
  /// Requests of the peer's that are not forgotten.
  package var incomingCount: Int { incoming.count }
  /// Nothing is under way: the channels may be closed.
  package var isIdle: Bool { outgoing.isEmpty && incoming.isEmpty }
}
