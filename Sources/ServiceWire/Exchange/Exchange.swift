import Foundation
package import SodiumPrimitives

/// All requests between this app and one other, over the channels that they have one after another:
/// the state machine of CHANNEL-PROTOCOL.md, "Requests". No socket, no clock, no thread: whoever
/// owns it brings messages and the time, and does what comes out.
///
/// It never trusts a message: what may not come now closes the channel with a fault, and changes
/// nothing else.
///
/// The two halves, requests sent and requests received, know nothing of each other; they share the
/// channels.
package struct Exchange: Sendable {
  package let ownAppID: String
  package let peerAppID: String
  package let process: Identifier
  package let limits: ExchangeLimits

  var channels: ExchangeChannels
  var retry: ChannelRetry
  var sent: SentRequests
  var received: ReceivedRequests
  /// The last time that the owner gave, in milliseconds: no later than now.
  private(set) var lastTime: UInt64 = 0

  /// Version 2 has another reason for which an offer waits, which version 1 closes the channel for.
  package static let versionMax: UInt32 = 2
  static let versionMin: UInt32 = 2
  package static let ticketByteCount = 32

  package init(
    ownAppID: String, peerAppID: String, process: Identifier, limits: ExchangeLimits = ExchangeLimits()
  ) {
    self.ownAppID = ownAppID
    self.peerAppID = peerAppID
    self.process = process
    self.limits = limits
    channels = ExchangeChannels(limits: limits)
    retry = ChannelRetry(limits: limits)
    sent = SentRequests(limits: limits)
    received = ReceivedRequests(limits: limits)
  }

  // MARK: What is known

  package var openChannelCount: Int { channels.openCount }
  package var channelCount: Int { channels.count }
  /// Whether the peer's `Hello` was taken, and nothing ended the channel since.
  package func isOpen(_ number: ChannelNumber) -> Bool { channels.isOpen(number) }
  /// What the peer's `Hello` said of the messages that it takes, for ``Deliveries``; nil before it.
  package func peerLimits(_ number: ChannelNumber) -> (frameByteCountMax: Int, attachmentCountMax: UInt64)? {
    guard let channel = channels[number], channel.isOpen else { return nil }
    return (channel.peerFrameByteCountMax, channel.peerAttachmentCountMax)
  }

  /// Requests of ours that have not ended.
  package var outgoingCount: Int { sent.requests.count }
  /// Requests of the peer's that are not forgotten.
  package var incomingCount: Int { received.requests.count }
  /// When ``tick(now:isDelivering:)`` has a channel to ask for, in milliseconds; nil when it has
  /// none.
  package var retryTime: UInt64? { retry.isConnecting ? nil : retry.time }
  /// Nothing is under way: the channels may be closed.
  package var isIdle: Bool { outgoingCount == 0 && incomingCount == 0 }

  /// Bytes of the replies that are kept until the peer has acknowledged them.
  package var keptReplyByteCount: Int { received.keptReplyByteCount }
  /// Another request of the peer's may be taken: else who acknowledges nothing could go on asking.
  package var hasRoomForReplies: Bool { received.hasRoomForReplies }
  /// Bytes of the peer's requests that have no answer yet.
  package var keptRequestByteCount: Int { received.keptRequestByteCount }

  /// Sets what may be kept of both: an owner lowers the limits for a peer that shares them with
  /// others.
  package mutating func limitKept(replyByteCount: Int, requestByteCount: Int) {
    received.keptReplyByteCountMax = replyByteCount
    received.keptRequestByteCountMax = requestByteCount
  }

  /// Sets how much may wait on each channel for a peer that does not read, and how many messages of it are taken meanwhile.
  package mutating func limitQueued(byteCount: Int, messageCount: Int) {
    channels.queuedByteCountMax = byteCount
    channels.fullMessageCountMax = messageCount
  }

  // MARK: The app as the consumer

  /// Takes a request that is to be sent. Throws `limitExceeded` when too many wait; `malformed`
  /// when the id is no id, or in use, or a name in it is too long; `unexpectedMessage` when it has
  /// files, which go as a delivery.
  package mutating func submit(_ request: WireRequest) throws(ProtocolFault) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    try sent.submit(request)
    retry.submitted()
    flush(&outputs)
    return outputs
  }

  /// The app does not want the request any more. What comes of it is an event; nothing for a
  /// request that has ended.
  package mutating func cancel(_ id: Identifier) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    sent.cancel(id, &outputs)
    return outputs
  }

  // MARK: The app as the provider

  /// The request that arrived is right, and everything of it is here: it waits for its turn.
  package mutating func admit(_ id: Identifier) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    received.admit(id, &outputs)
    return outputs
  }

  /// The app is locked: the request that arrived waits, and its sender hears so.
  package mutating func hold(_ id: Identifier) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    received.hold(id, &outputs)
    return outputs
  }

  /// The request that arrived is wrong.
  package mutating func refuse(_ id: Identifier, _ failure: WireFailure) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    received.refuse(id, failure, channels, &outputs)
    return outputs
  }

  /// Its turn has come. False when it was withdrawn.
  package mutating func begin(_ id: Identifier) -> Bool { received.begin(id) }

  /// The app's reply. Throws `unexpectedMessage` when the request is not being handled, or was
  /// replied to, or the reply has files; `malformed` when the text of its error is too long. Of a
  /// reply that cannot be sent comes `replyRefused`, and the request has ended with that failure.
  package mutating func reply(_ reply: WireReply, now: UInt64) throws(ProtocolFault) -> [ExchangeOutput] {
    note(now)
    var outputs: [ExchangeOutput] = []
    try received.reply(reply, now: now, &channels, &outputs)
    return outputs
  }

  /// The app will not reply, or a delivery brings its reply. Throws as ``reply(_:now:)`` does.
  package mutating func endWithoutReply(
    _ id: Identifier, isDelivered: Bool = false, now: UInt64
  ) throws(ProtocolFault) -> [ExchangeOutput] {
    note(now)
    var outputs: [ExchangeOutput] = []
    try received.endWithoutReply(id, isDelivered: isDelivered, now: now, &channels, &outputs)
    return outputs
  }

  /// Lets the peer send so many requests more.
  package mutating func grant(_ more: Int, on channel: ChannelNumber) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    if more > 0, channels.isOpen(channel) { received.grant(more, on: channel, &outputs) }
    return outputs
  }

  // MARK: Time

  mutating func note(_ now: UInt64) { lastTime = max(lastTime, now) }

  /// Called every second or so, and at ``retryTime``. `isDelivering`: deliveries are under way, so
  /// the peer has to live as if requests were.
  package mutating func tick(now: UInt64, isDelivering: Bool = false) -> [ExchangeOutput] {
    note(now)
    var outputs: [ExchangeOutput] = []
    for number in channels.numbers {
      switch channels.check(number, now: now, isIdle: isIdle && !isDelivering) {
      case .lives: break
      case .hasToAnswer: outputs.append(.send(.with { $0.ping.number = now }, on: number))
      case .isOverdue: outputs += fail(number, .timedOut, now: now)
      }
    }
    sent.tick(now: now, &outputs)
    for (id, channel) in received.overdue(now: now) {
      if let channel, channels[channel] != nil {
        outputs += fail(channel, .timedOut, detail: "reply time", now: now)
      }
      received.expire(id, channels, &outputs)
    }
    if retry.endPause(now: now), channels.isEmpty, sent.needsChannel { retry.connect(&outputs) }
    return outputs
  }

  /// Sends what waits, as far as there is credit and the peer reads; asks for a channel if there is
  /// none.
  mutating func flush(_ outputs: inout [ExchangeOutput]) {
    sent.flush(&channels, now: lastTime, &outputs)
    if channels.isEmpty, sent.queuedCount > 0 { retry.connect(&outputs) }
  }
}
