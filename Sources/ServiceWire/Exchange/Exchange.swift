import Foundation
package import SodiumPrimitives

/// All requests between this app and one other, over the channels that they have one after another: the state machine of
/// SERVICE-PROTOCOL.md, "The channel". No socket, no clock, no thread: whoever owns it brings messages and the time, and does what comes out.
///
/// It never trusts a message: what may not come now closes the channel with a fault, and changes nothing else.
package struct Exchange: Sendable {
  package let ownAppID: String
  package let peerAppID: String
  package let process: Identifier
  package let limits: ExchangeLimits

  var channels: [ChannelNumber: Channel] = [:]
  /// The channel that was opened last.
  var newest: ChannelNumber?
  /// Where the last request went.
  var sending: ChannelNumber?
  var isConnecting = false
  var retry = Retry()
  /// Waiting for a channel or for credit, oldest first; those that are no more in `outgoing` count for nothing.
  var queue: [Identifier] = []
  var queueBegin = 0
  var queuedCount = 0
  var outgoing: [Identifier: Outgoing] = [:]
  var incoming: [Identifier: Incoming] = [:]
  /// Bytes of the replies that are kept until the peer has acknowledged them.
  package internal(set) var keptReplyByteCount = 0
  /// Of the peer's requests that have no answer yet.
  package internal(set) var keptRequestByteCount = 0
  /// What the limits of both are now: an owner lowers them for a peer that shares them with others.
  package var keptReplyByteCountMax: Int
  package var keptRequestByteCountMax: Int
  /// The last time that the owner told, in milliseconds: no later than now.
  var lastTime: UInt64 = 0

  /// When a channel is asked for again after one that ended too early: so that a peer whose beginning always fails is not dialled without end.
  struct Retry {
    /// Not before; nil: at once.
    var time: UInt64?
    /// The next pause; 0 for the first attempt after a channel that lasted.
    var pause: UInt64 = 0
    /// There is no way to the peer. Whoever submits a request wants to know whether that still holds, so it is tried at once.
    var wasRefused = false
    var failedBeginningCount = 0
  }

  struct Channel {
    let ticket: Data
    let opened: UInt64
    var lastHeard: UInt64
    var ping: UInt64?
    var peerProcess: Identifier?
    /// Requests that we may send.
    var credit = 0
    /// Requests that the peer may send.
    var granted: Int
    /// What was left out of the first credit because earlier requests of the peer are not forgotten yet.
    var owed: Int
    var peerFrameByteCountMax = 0
    var peerAttachmentCountMax: UInt64 = 0
    /// Requests whose `Cancel` has no answer yet, which will make no difference: they had been accepted, or have ended.
    var settledCancels: Set<Identifier> = []
    /// Requests of ours that were sent here, and of which it is not known that they arrived.
    var unaccepted: Set<Identifier> = []
    /// Answers to the peer's requests that wait for room, oldest first.
    var waitingAnswers: [Identifier] = []
    /// Put out since there was room.
    var sentByteCount = 0
    /// More waits to be written than the limit.
    var isFull = false
    var heardWhileFullCount = 0
    var isOpen: Bool { peerProcess != nil }

    /// Counts what was put out. True when no more may follow before there is room.
    mutating func didSend(_ byteCount: Int, _ limits: ExchangeLimits) -> Bool {
      sentByteCount += byteCount
      guard sentByteCount > limits.queuedByteCountMax else { return false }
      isFull = true
      heardWhileFullCount = 0
      sentByteCount = 0
      return true
    }
  }

  struct Outgoing {
    enum State: Equatable {
      case queued, sent, accepted
      case cancelling(accepted: Bool)
      /// The channel broke.
      case unknown(since: UInt64, wasAccepted: Bool, cancels: Bool)
    }

    var state: State
    /// Until it was accepted: it may have to be sent again.
    var message: WireRequest?
    /// No later than it was sent.
    var sentTime: UInt64 = 0
    var wasSentAgain = false
    /// Where it was sent, and where its credit comes back.
    var channel: ChannelNumber?
    /// Where its answers come.
    var answerChannel: ChannelNumber?
    var peerProcess: Identifier?
    /// Of the channels that it was sent over, or asked about.
    var tickets: [Data] = []
    /// The app cancelled it too late and was told so; the handler hears of it, over the next channel when this one breaks.
    var isCancelledTooLate = false
  }

  struct Incoming {
    enum State: Equatable {
      case arrived, queued, handling
      case replied(WireReply)
      case ended

      var isAnswered: Bool {
        switch self {
        case .replied, .ended: true
        case .arrived, .queued, .handling: false
        }
      }
    }

    var state: State = .arrived
    /// Where its answers go; nil when that broke.
    var channel: ChannelNumber?
    /// Where it took a credit.
    var creditChannel: ChannelNumber?
    let peerProcess: Identifier?
    /// When the channel broke.
    var brokenSince: UInt64 = 0
    var replySent: UInt64 = 0
    /// As encoded.
    var replyByteCount = 0
    /// What the answer takes until it is acknowledged.
    var keptReplyByteCount = 0
    var requestByteCount = 0
    /// The answer waits for room on its channel.
    var isAnswerWaiting = false
    /// The app was told that nobody gets the reply: a failure stands in its place.
    var isReplyGivenUp = false
    /// Ended, and a delivery brings the reply.
    var isReplyDelivered = false
    /// The handler hears of it once.
    var isCancelRequested = false
  }

  package static let versionMax: UInt32 = 1
  package static let ticketByteCount = 32

  package init(
    ownAppID: String, peerAppID: String, process: Identifier, limits: ExchangeLimits = ExchangeLimits()
  ) {
    self.ownAppID = ownAppID
    self.peerAppID = peerAppID
    self.process = process
    self.limits = limits
    keptReplyByteCountMax = limits.keptReplyByteCountMax
    keptRequestByteCountMax = limits.requestByteCountMax
  }

  // MARK: What is known

  package var openChannelCount: Int { channels.values.count { $0.isOpen } }
  package var channelCount: Int { channels.count }
  /// Whether the peer's `Hello` was taken, and nothing ended the channel since.
  package func isOpen(_ number: ChannelNumber) -> Bool { channels[number]?.isOpen == true }
  /// What the peer's `Hello` said of the messages that it takes, for ``Deliveries``; nil before it.
  package func peerLimits(_ number: ChannelNumber) -> (frameByteCountMax: Int, attachmentCountMax: UInt64)? {
    guard let channel = channels[number], channel.isOpen else { return nil }
    return (channel.peerFrameByteCountMax, channel.peerAttachmentCountMax)
  }

  /// Requests of ours that have not ended.
  package var outgoingCount: Int { outgoing.count }
  /// Requests of the peer's that are not forgotten.
  package var incomingCount: Int { incoming.count }
  /// When ``tick(now:)`` has a channel to ask for, in milliseconds; nil when it has none.
  package var retryTime: UInt64? { isConnecting ? nil : retry.time }
  /// Nothing is under way: the channels may be closed.
  package var isIdle: Bool { outgoing.isEmpty && incoming.isEmpty }
}
