import Foundation
import SodiumPrimitives

extension Exchange {
  /// A message came over a channel.
  package mutating func receive(
    _ message: WireChannelMessage, on number: ChannelNumber, now: UInt64
  ) -> [ExchangeOutput] {
    if let outputs = hear(number, now) { return outputs }
    var outputs: [ExchangeOutput] = []
    do throws(ProtocolViolation) {
      try take(message, number, now, &outputs)
      flush(&outputs)
    } catch {
      outputs += fail(number, error.fault, detail: error.detail, now: now)
    }
    return outputs
  }

  /// A message came that is not the exchange's: the peer lives. Closes the channel as too slow when the peer does not read what waits for it.
  package mutating func heard(on number: ChannelNumber, now: UInt64) -> [ExchangeOutput] {
    hear(number, now) ?? []
  }

  /// Nil when what came is to be looked at.
  private mutating func hear(_ number: ChannelNumber, _ now: UInt64) -> [ExchangeOutput]? {
    note(now)
    // What the other side sent after a fault is nothing any more.
    guard let channel = channels[number] else { return [] }
    if channel.isFull {
      guard channel.heardWhileFullCount < limits.fullChannelMessageCountMax else {
        return fail(number, .tooSlow, now: now)
      }
      channels[number]?.heardWhileFullCount += 1
    }
    channels[number]?.lastHeard = now
    channels[number]?.ping = nil
    return nil
  }

  mutating func take(
    _ message: WireChannelMessage, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    guard let kind = message.kind else { throw ProtocolViolation(fault: .malformed) }
    switch kind {
    case .goodbye:
      // Whatever it says: the other side has closed.
      outputs += fail(number, .noError, now: now)
      return
    case .hello(let hello): return try take(hello, number, &outputs)
    default:
      guard channels[number]?.isOpen == true else { throw ProtocolViolation(fault: .unexpectedMessage) }
    }
    switch kind {
    case .ping(let ping): outputs.append(.send(.with { $0.pong.number = ping.number }, on: number))
    case .pong: break
    case .request(let request): try take(request, number, &outputs)
    case .accepted(let message): try takeAccepted(Identifier(wire: message.id), number, &outputs)
    case .refused(let message):
      try takeRefused(Identifier(wire: message.id), message.failure, number, &outputs)
    case .reply(let reply): try takeReply(reply, number, &outputs)
    case .noReply(let message):
      try takeEnd(
        Identifier(wire: message.id), message.isDelivered ? .replyIsDelivered : .noReply, number, &outputs)
    case .replyAccepted(let message): try takeReplyAccepted(Identifier(wire: message.id), &outputs)
    case .cancel(let message):
      try takeCancel(Identifier(wire: message.id), message.afterAccepted, number, &outputs)
    case .cancelled(let message):
      try takeCancelled(Identifier(wire: message.id), message.done, number, &outputs)
    case .inquiry(let message): try takeInquiry(message, number, now, &outputs)
    case .standing(let message):
      try takeStanding(Identifier(wire: message.id), message.state, number, &outputs)
    case .credit(let credit):
      guard let have = channels[number]?.credit, credit.more > 0,
        have + Int(credit.more) <= ExchangeLimits.creditMax
      else { throw ProtocolViolation(fault: .malformed) }
      channels[number]?.credit = have + Int(credit.more)
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  mutating func take(
    _ hello: WireChannelHello, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    guard var channel = channels[number], !channel.isOpen else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard hello.version >= 1 else { throw ProtocolViolation(fault: .versionNotSupported) }
    guard hello.ticket == channel.ticket else { throw ProtocolViolation(fault: .ticketRefused) }
    guard hello.appID.utf8.elementsEqual(peerAppID.utf8) else {
      throw ProtocolViolation(fault: .certificateNotFound)
    }
    guard let process = Identifier(exactly: hello.process), Int(hello.requests) <= ExchangeLimits.creditMax,
      hello.frameByteCount >= ExchangeLimits.frameByteCountMin, hello.slots <= BulkSlots.countMax
    else { throw ProtocolViolation(fault: .malformed) }
    channel.peerProcess = process
    channel.credit = Int(hello.requests)
    channel.peerFrameByteCountMax = Int(hello.frameByteCount)
    channel.peerAttachmentCountMax = hello.attachments
    channels[number] = channel
    newest = number
    retry.failedBeginningCount = 0
    expireReplies(toOthersThan: process, &outputs)
    inquire(over: number, &outputs)
    payCredit(&outputs)
  }

  /// Asks about the requests whose channel broke.
  mutating func inquire(over number: ChannelNumber, _ outputs: inout [ExchangeOutput]) {
    guard let channel = channels[number], let process = channel.peerProcess else { return }
    for (id, request) in outgoing {
      guard case .unknown = request.state, request.answerChannel == nil else { continue }
      guard request.peerProcess == process, request.tickets.count < ExchangeLimits.inquiryTicketCountMax
      else {
        outgoing[id] = nil
        outputs.append(.consumer(id, .lost(arrived: true)))
        continue
      }
      outgoing[id]?.answerChannel = number
      outgoing[id]?.tickets.append(channel.ticket)
      outputs.append(
        .send(
          .with {
            $0.inquiry = .with {
              $0.id = id.data
              $0.tickets = request.tickets
            }
          }, on: number))
    }
  }
}
