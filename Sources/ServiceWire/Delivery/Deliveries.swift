import Foundation
import SodiumPrimitives

/// All messages with files between this app and one other, in both directions, over the channels that they have one after another: the state
/// machine of DELIVERY-PROTOCOL.md, "States". No socket, no clock, no disk: whoever owns it brings what happens, and does what comes out.
///
/// It never trusts a message: what may not come now closes the channel with a fault, and changes nothing else.
package struct Deliveries: Sendable {
  package let limits: DeliveryLimits

  var channels: [ChannelNumber: Channel] = [:]
  /// The open ones, oldest first: offers go over the last.
  var order: [ChannelNumber] = []
  var isConnecting = false
  var outgoing: [Identifier: Outgoing] = [:]
  /// Of those in `outgoing` that wait for a channel or for their turn, by number.
  var queue: [Identifier] = []
  /// Those that have a channel.
  var offeredCount = 0
  var incoming: [Identifier: Incoming] = [:]
  var inquiries: [Identifier: Inquiry] = [:]
  /// Questions of ours and ends of requests that no channel has taken yet, oldest first.
  var waitingInquiries: [Identifier] = []
  var waitingEnds: [Identifier] = []

  struct Channel {
    /// Of a message that the peer takes.
    let frameByteCountMax: Int
    let attachmentCountMax: UInt64
    /// The last number that was given to a stream that is received here, and the last that the peer gave.
    var lastReceivedStream: UInt32 = 0
    var lastSentStream: UInt32 = 0
    /// A delivery went on here: worth to dial again at once.
    var hasServed = false
    /// Deliveries of the peer's that were answered for good, the last ones: what the peer sent before it read the answer may still come.
    var ended: [Ended] = []
    /// Questions of ours without an answer.
    var inquiryCount = 0
    /// Questions of the peer's without an answer.
    var asked: Set<Identifier> = []
  }

  struct Ended {
    let id: Identifier
    let wasCommitted: Bool
    /// Its number was taken: it may be offered again under another incarnation.
    var mayComeAgain = false
  }

  enum Inquiry: Equatable {
    case waiting
    case asked(ChannelNumber)
  }

  struct Outgoing {
    enum State: Equatable {
      case queued
      /// The owner loads the message.
      case loading(ChannelNumber)
      case offered(ChannelNumber)
      /// The owner loads a page.
      case paging(ChannelNumber, from: UInt64)
      case accepted(ChannelNumber)
      /// The receiver was told that it is not to be delivered.
      case cancelling(ChannelNumber)
      /// The owner has forgotten it; the receiver's answer is to come.
      case failed(ChannelNumber)

      var channel: ChannelNumber? {
        switch self {
        case .queued: nil
        case .loading(let channel), .offered(let channel), .paging(let channel, _), .accepted(let channel),
          .cancelling(let channel), .failed(let channel):
          channel
        }
      }
    }

    let number: UInt64
    let fileCount: UInt64
    let byteCount: UInt64
    var state: State = .queued
    /// Over an earlier channel, or by an earlier process: the receiver may have committed it.
    var wasOffered: Bool
    var wasAccepted = false
    var isCancelled = false
    /// How often its number was taken: another copy of the sender's container may come between, but a receiver that goes on saying so
    /// would go on for ever.
    var renumberCount = 0
    static let renumberCountMax = 8
    /// That of the last offer.
    var incarnation = WireIncarnation()
    /// What the offer says that the receiver has; nil after it was contradicted.
    var delivered: UInt64?
    /// Where the next page begins; nil before the first.
    var nextPage: UInt64?
    var stream: SentStream?
    /// The receiver has asked again over this channel, for contents that did not open.
    var wasAskedAgain = false
    /// What the receiver said that it has.
    var received: UInt64 = 0
  }

  struct SentStream: Equatable {
    let number: UInt32
    /// Frames that may be sent, in all.
    var credit: UInt64
  }

  struct Incoming {
    enum State: Equatable {
      /// The owner has the offer.
      case offered
      /// A page was asked for.
      case paging(from: UInt64)
      /// The owner has the whole manifest.
      case listed
      case receiving
      case committing
      /// The owner discards it.
      case withdrawn
    }

    let fileCount: UInt64
    let byteCount: UInt64
    var state: State = .offered
    /// Nil when that went: while the owner commits or discards it.
    var channel: ChannelNumber?
    /// While it is received.
    var stream: UInt32?
    /// The position up to which the contents are kept.
    var received: UInt64 = 0
    /// Frames of the stream that had come when the sender was told last.
    var toldFrameCount: UInt64 = 0
    var hasAskedAgain = false
    /// The owner of one that is committed hears of it afterwards.
    var isCancelled = false
    /// It was offered over other channels too. The sender has closed all but one of them, and which one only their ends tell.
    var waiting: [WaitingOffer] = []

    /// Where the sender waits for an answer.
    var channels: [ChannelNumber] { (channel.map { [$0] } ?? []) + waiting.map(\.channel) }
  }

  struct WaitingOffer {
    let channel: ChannelNumber
    let offer: WireOffer
    var isWithdrawn = false
    var isCancelled = false
  }

  package init(limits: DeliveryLimits = DeliveryLimits()) {
    precondition(limits.creditFrameCount > 0, "a credit that lets nothing come")
    self.limits = limits
  }

  // MARK: What is known

  /// Whether ``receive(_:on:)`` takes it; all others are an exchange's.
  package static func isDelivery(_ message: WireChannelMessage) -> Bool {
    switch message.kind {
    case .offer, .deliveryAccepted, .deliveryRefused, .manifestWanted, .manifestPage, .deliveryProgress,
      .committed, .putBack, .acknowledged, .deliveryCancelled, .deliveryFailed, .replyInquiry, .replyStanding,
      .requestEnded:
      true
    default: false
    }
  }

  /// Nothing is under way in either role: the channels may be closed.
  package var isIdle: Bool {
    outgoing.isEmpty && incoming.isEmpty && inquiries.isEmpty && waitingEnds.isEmpty
      && channels.values.allSatisfy { $0.asked.isEmpty }
  }

  /// Something is to be sent and there is no channel.
  package var waitsForChannel: Bool {
    channels.isEmpty && !(queue.isEmpty && waitingInquiries.isEmpty && waitingEnds.isEmpty)
  }

  /// Deliveries of ours that are not settled, with those that failed and whose receiver has not answered.
  package var outgoingCount: Int { outgoing.count }
  /// Deliveries of the peer's that are under way.
  package var incomingCount: Int { incoming.count }
  package func isOpen(_ number: ChannelNumber) -> Bool { channels[number] != nil }

  var newest: ChannelNumber? { order.last }

  static func failure(_ fault: ProtocolFault, _ detail: String) -> WireFailure {
    .with {
      $0.error = fault.rawValue
      $0.detail = detail
    }
  }
}
