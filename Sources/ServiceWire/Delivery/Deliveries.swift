package import Foundation
import ServiceValues
package import SodiumPrimitives

/// All messages with files between this app and one other, in both directions, over the channels that they have one after another: the state
/// machine of DELIVERY-PROTOCOL.md, "States". No socket, no clock, no disk: whoever owns it brings what happens, and does what comes out.
///
/// It never trusts a message: what may not come now closes the channel with a fault, and changes nothing else.
package struct Deliveries: Sendable {
  package let limits: DeliveryLimits

  private(set) var channels = DeliveryChannels()
  private var isConnecting = false
  private(set) var sent: SentDeliveries
  private(set) var received: ReceivedDeliveries
  private(set) var inquiries: ReplyInquiries

  package init(limits: DeliveryLimits = DeliveryLimits()) {
    precondition(limits.creditFrameCount > 0, "a credit that lets nothing come")
    self.limits = limits
    sent = SentDeliveries(limits: limits)
    received = ReceivedDeliveries(limits: limits)
    inquiries = ReplyInquiries(limits: limits)
  }

  // MARK: What is known

  /// Whether ``receive(_:on:)`` takes it; all others are an exchange's.
  package static func isDelivery(_ message: WireChannelMessage) -> Bool {
    switch message.kind {
    case .offer, .deliveryAccepted, .deliveryRefused, .manifestWanted, .manifestPage,
      .deliveryWaiting, .deliveryProgress,
      .committed, .putBack, .acknowledged, .deliveryCancelled, .deliveryFailed, .replyInquiry,
      .replyStanding,
      .requestEnded:
      true
    default: false
    }
  }

  /// Nothing is under way in either role: the channels may be closed.
  package var isIdle: Bool { sent.isEmpty && received.isEmpty && inquiries.isIdle }

  /// The next step of something is to come over a channel, or is this app's own: not of what waits until its receiver runs.
  package var isMoving: Bool { sent.isMoving || received.isMoving || !inquiries.isIdle }

  /// What the receiver waits for before it takes what we have offered, as it has said over a channel that is there; nil when nothing waits.
  package var waitReason: WireDeliveryWaiting.Reason? { sent.waiting.isEmpty ? nil : sent.waitReason }

  /// There is a channel.
  package var isConnected: Bool { !channels.isEmpty }

  /// Something is to be sent and there is no channel.
  package var waitsForChannel: Bool {
    channels.isEmpty && (sent.hasWaiting || inquiries.hasWaiting)
  }

  /// Deliveries of ours that are not settled, with those that failed and whose receiver has not answered.
  package var outgoingCount: Int { sent.count }
  /// Deliveries of the peer's that are under way.
  package var incomingCount: Int { received.count }
  package func isOpen(_ number: ChannelNumber) -> Bool { channels[number] != nil }

  // MARK: Channels

  /// Both sides have said hello; `frameByteCountMax` and `attachmentCountMax` are what the peer's said.
  package mutating func channelOpened(
    _ number: ChannelNumber, frameByteCountMax: Int = .max, attachmentCountMax: UInt64 = 0
  ) -> [DeliveryOutput] {
    isConnecting = false
    channels.open(
      number,
      DeliveryChannels.Channel(
        frameByteCountMax: frameByteCountMax, attachmentCountMax: attachmentCountMax))
    received.channelOpened(number)
    inquiries.channelOpened(number)
    var outputs: [DeliveryOutput] = []
    flush(&outputs)
    return outputs
  }

  /// The channel has ended, in good order or not; nothing for one that is not known. Ask ``waitsForChannel`` afterwards: unless the channel
  /// served, no other is asked for before ``retry()``. `isOverLimit`: the peer has ended it with `limitExceeded`.
  package mutating func channelClosed(_ number: ChannelNumber, isOverLimit: Bool = false) -> [DeliveryOutput]
  {
    guard let closed = channels.close(number) else { return [] }
    var outputs: [DeliveryOutput] = []
    sent.channelClosed(number, isOverLimit: isOverLimit, &outputs)
    received.channelClosed(number, &outputs)
    inquiries.channelClosed(number)
    if closed.hasServed { outputs += retry() }
    flush(&outputs)
    return outputs
  }

  /// There is no way to the peer now: everything waits. The owner calls ``retry()`` when it is worth another attempt.
  package mutating func channelRefused() -> [DeliveryOutput] {
    isConnecting = false
    return []
  }

  /// Asks for a channel when something waits for one and none was asked for.
  package mutating func retry() -> [DeliveryOutput] {
    guard waitsForChannel, !isConnecting else { return [] }
    isConnecting = true
    return [.connect]
  }

  private mutating func close(_ number: ChannelNumber, _ violation: ProtocolViolation)
    -> [DeliveryOutput]
  {
    guard channels[number] != nil else { return [] }
    return [.close(number, violation.fault, detail: violation.detail)] + channelClosed(number)
  }

  /// Lets the owner load what may be offered, and sends what waits.
  private mutating func flush(_ outputs: inout [DeliveryOutput]) {
    guard let number = channels.newest, let channel = channels[number] else { return }
    inquiries.flush(over: number, &outputs)
    sent.flush(over: number, channel, &outputs)
  }

  /// What something new needs: a channel, or its turn on the one that there is.
  private mutating func begin() -> [DeliveryOutput] {
    var outputs = retry()
    flush(&outputs)
    return outputs
  }

  // MARK: What the sender's owner says

  /// A message is in the outbox. `number` is its number there; `wasOffered` when an earlier process may have offered it, so that only the
  /// receiver knows whether it has it. Nothing for an id that is known already.
  package mutating func enqueue(
    _ id: Identifier, number: UInt64, fileCount: UInt64, byteCount: UInt64, isReply: Bool = false,
    wasOffered: Bool = false
  ) -> [DeliveryOutput] {
    let isNew = sent.enqueue(
      id, number: number, fileCount: fileCount, byteCount: byteCount, isReply: isReply, wasOffered: wasOffered
    )
    return isNew ? begin() : []
  }

  /// Answers `wantsOffer`; nothing when it was cancelled or its channel went meanwhile. What it says of itself is taken from
  /// ``enqueue(_:number:fileCount:byteCount:isReply:wasOffered:)``.
  package mutating func offer(_ offer: WireOffer) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    sent.offer(offer, channels, &outputs)
    flush(&outputs)
    return outputs
  }

  /// Answers `wantsPage` with the next files: as many of them as fit in a page are sent. Nothing when it is not wanted any more.
  package mutating func page(_ id: Identifier, from: UInt64, _ files: [WireOfferedFile])
    -> [DeliveryOutput]
  {
    var outputs: [DeliveryOutput] = []
    sent.page(id, from: from, files, channels, &outputs)
    flush(&outputs)
    return outputs
  }

  /// Whether a failure would end it: nothing ends one that has ended, and of one that is being cancelled the receiver's answer decides.
  package func canFail(_ id: Identifier) -> Bool { sent.canFail(id) }

  /// What the receiver wants cannot be read: the delivery has ended with that failure. Does nothing unless it can fail.
  package mutating func fail(_ id: Identifier, _ failure: WireFailure) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    sent.fail(id, failure, &outputs)
    flush(&outputs)
    return outputs
  }

  /// The app does not want it delivered any more. One that was never offered has ended; of any other the receiver's answer decides, over the
  /// next channel when there is none.
  package mutating func cancel(_ id: Identifier) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    if sent.cancel(id, &outputs) { outputs += retry() }
    flush(&outputs)
    return outputs
  }

  /// Tells the receiver what it may forget, when there is a channel.
  package mutating func acknowledge(floor: UInt64, incarnation: WireIncarnation) -> [DeliveryOutput] {
    guard let number = channels.newest else { return [] }
    return [
      .send(
        .with {
          $0.acknowledged = .with {
            $0.floor = floor
            $0.incarnation = incarnation
          }
        }, on: number)
    ]
  }

  // MARK: What the receiver's owner says

  /// The limit that an offer exceeds: for the owner to refuse it with, once it knows that it was not delivered before.
  package func refusal(of offer: WireOffer) -> WireFailure? { received.refusal(of: offer) }

  /// Where its last offer came; nil when it is gone, or its channel is.
  package func channel(of id: Identifier) -> ChannelNumber? { received.channel(of: id) }

  /// Why one of ours waits at its receiver; nil when it does not.
  package func waitReason(ofSent id: Identifier) -> WireDeliveryWaiting.Reason? { sent.waitReason(of: id) }

  /// Nil for one of ours that is over, or has no channel now.
  package func channel(ofSent id: Identifier) -> ChannelNumber? { sent.outgoing[id]?.state.channel }

  /// The receiver knows the first `from` files: the others come as `page`, all of them. Nothing when the offer is gone.
  package mutating func wantPages(_ id: Identifier, from: UInt64) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.wantPages(id, from: from, &outputs)
    return outputs
  }

  /// The app is locked or suspended, or its container takes nothing: the offer is answered later, and its sender hears so, again when the
  /// reason has changed. Nothing when it is gone.
  package mutating func hold(_ id: Identifier, for reason: WireDeliveryWaiting.Reason) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.hold(id, for: reason, &outputs)
    return outputs
  }

  /// An answer to an offer that was held may follow, or it is held again.
  package mutating func release(_ id: Identifier) -> [DeliveryOutput] {
    received.release(id)
    return []
  }

  /// All files are known, and the contents up to `from` are kept. Without a rest there is no stream and no key.
  package mutating func accept(_ id: Identifier, from: UInt64, key: Data) -> [DeliveryOutput] {
    closing(received.channel(of: id)) { received, outputs throws(ProtocolViolation) in
      try received.accept(id, from: from, key: key, &outputs)
    }
  }

  /// A segment of the stream does not open: the contents from `from` on, up to which they are kept, are asked for again, once. Another
  /// time the channel closes. Nothing when it is not received any more.
  package mutating func askAgain(
    _ id: Identifier, from: UInt64, damaged: UInt64, key: Data
  ) -> [DeliveryOutput] {
    closing(received.channel(of: id)) { received, outputs throws(ProtocolViolation) in
      try received.askAgain(id, from: from, damaged: damaged, key: key, &outputs)
    }
  }

  /// What is thrown closes the channel.
  private mutating func closing(
    _ number: ChannelNumber?,
    _ body: (inout ReceivedDeliveries, inout [DeliveryOutput]) throws(ProtocolViolation) -> Void
  ) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    do throws(ProtocolViolation) {
      try body(&received, &outputs)
    } catch {
      if let number { outputs += close(number, error) }
    }
    return outputs
  }

  /// It will not be taken, whatever was answered before; also when the commit failed. Nothing when it is gone, or is being discarded.
  package mutating func refuse(_ id: Identifier, _ failure: WireFailure) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.refuse(id, failure, generation: 0, &outputs)
    return outputs
  }

  /// Leaves a message open when the receiver cannot tell whether it has it. Nothing is answered; every channel over which it was
  /// offered is closed, so that the sender offers it again.
  package mutating func leaveOpen(_ id: Identifier, detail: String) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    for number in received.leaveOpen(id, &outputs) {
      outputs += close(number, ProtocolViolation(fault: .limitExceeded, detail: detail))
    }
    return outputs
  }

  /// The ledger says that the number cannot be used; `generation` is the newest that was seen of the sender. It may be offered again, under
  /// a newer one.
  package mutating func refuseNumber(_ id: Identifier, generation: UInt64) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    let failure = WireFailure.with { $0.error = UInt32(ServicesError.numberTaken.rawValue) }
    received.refuse(id, failure, generation: generation, &outputs)
    return outputs
  }

  /// The receiver's container was put back: it has `count` messages under the offer's incarnation, and the sender was told of
  /// more. Said before any other answer; nothing when the offer is gone.
  package mutating func putBack(_ id: Identifier, count: UInt64) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.putBack(id, count: count, &outputs)
    return outputs
  }

  /// `frameCount` frames of the stream were taken, and the contents up to `total` are kept. The lane's credit is raised before: to
  /// those and ``DeliveryLimits/creditFrameCount`` more.
  package mutating func received(
    _ id: Identifier, _ total: UInt64, frameCount: UInt64
  ) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.received(id, total, frameCount: frameCount, &channels, &outputs)
    return outputs
  }

  /// Everything is here. False when it was withdrawn or interrupted meanwhile; after true it is too late for both.
  package mutating func beginCommit(_ id: Identifier) -> Bool { received.beginCommit(id) }

  /// It is the receiver's, durably: just now, or since it was offered for the first time. Nothing when it is gone: the next offer is answered
  /// from the ledger.
  package mutating func committed(_ id: Identifier, count: UInt64 = 0) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.committed(id, count: count, &channels, &outputs)
    return outputs
  }

  /// Nothing is left of one that was withdrawn.
  package mutating func discarded(_ id: Identifier) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    received.discarded(id, &outputs)
    return outputs
  }

  // MARK: What is said of replies

  /// Asks whether a reply to a request that was delivered may still come, over the channel there is or the next one.
  package mutating func inquire(_ request: Identifier) -> [DeliveryOutput] {
    inquiries.inquire(request) ? begin() : []
  }

  /// The answer to `inquired`.
  package mutating func standing(_ request: Identifier, isAwaited: Bool) -> [DeliveryOutput] {
    var outputs: [DeliveryOutput] = []
    inquiries.standing(request, isAwaited: isAwaited, channels, &outputs)
    return outputs
  }

  /// There will be no reply to a request that was delivered: said over the channel there is or the next one.
  package mutating func endRequest(_ request: Identifier) -> [DeliveryOutput] {
    inquiries.endRequest(.with { $0.id = request.data })
    return begin()
  }

  /// There was a reply to a request that was delivered, and it will not come: said over the channel there is. Without one nothing is
  /// kept, since its consumer asks over the next.
  package mutating func replyLost(_ request: Identifier) -> [DeliveryOutput] {
    guard channels.newest != nil else { return [] }
    inquiries.endRequest(
      .with {
        $0.id = request.data
        $0.isReplyLost = true
      })
    var outputs: [DeliveryOutput] = []
    flush(&outputs)
    return outputs
  }

  // MARK: What comes

  /// A message came over a channel, one for which ``isDelivery(_:)`` is true. Nothing for a channel that is not known.
  package mutating func receive(_ message: WireChannelMessage, on number: ChannelNumber)
    -> [DeliveryOutput]
  {
    // What the other side sent after a fault is nothing any more.
    guard channels[number] != nil else { return [] }
    var outputs: [DeliveryOutput] = []
    do throws(ProtocolViolation) {
      try take(message, number, &outputs)
      flush(&outputs)
    } catch {
      outputs += close(number, error)
    }
    return outputs
  }

  private mutating func take(
    _ message: WireChannelMessage, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    guard let kind = message.kind else { throw ProtocolViolation(fault: .malformed) }
    switch kind {
    // From the sender of a delivery.
    case .offer(let offer):
      let isOurs = Identifier(exactly: offer.id).map(sent.contains) ?? false
      try received.take(offer, isOurs: isOurs, number, &outputs)
    case .manifestPage(let page): try received.take(page, number, &outputs)
    case .deliveryFailed(let message):
      try message.failure.check()
      try received.takeWithdrawal(Identifier(wire: message.id), isCancel: false, number, &outputs)
    case .acknowledged(let message):
      try message.incarnation.check()
      outputs.append(.acknowledged(floor: message.floor, incarnation: message.incarnation))
    // From its receiver.
    case .manifestWanted(let message): try sent.takeManifestWanted(message, number, &outputs)
    case .deliveryAccepted(let message): try sent.takeAccepted(message, number, &outputs)
    case .deliveryWaiting(let message):
      try sent.takeWaiting(message, number, &outputs)
    case .deliveryProgress(let message): try sent.takeProgress(message, number, &channels, &outputs)
    case .committed(let message):
      try sent.takeEnd(
        Identifier(wire: message.id), .committed, count: message.count, number, &channels, &outputs)
    case .putBack(let message): try sent.takePutBack(message, number, &outputs)
    case .deliveryRefused(let message):
      try sent.takeEnd(
        Identifier(wire: message.id), .refused(message.failure), generation: message.generation,
        number,
        &channels, &outputs)
    // From either.
    case .deliveryCancelled(let message):
      let id = try Identifier(wire: message.id)
      if sent.contains(id) {
        try sent.takeEnd(id, .cancelled, number, &channels, &outputs)
      } else {
        try received.takeWithdrawal(id, isCancel: true, number, &outputs)
      }
    // About replies.
    case .replyInquiry(let message): try inquiries.take(message, number, &outputs)
    case .replyStanding(let message): try inquiries.take(message, number, &outputs)
    case .requestEnded(let message):
      outputs.append(.requestEnded(try Identifier(wire: message.id), isReplyLost: message.isReplyLost))
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }
}
