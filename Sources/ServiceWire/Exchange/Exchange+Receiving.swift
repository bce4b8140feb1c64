import Foundation
import SodiumPrimitives

extension Exchange {
  /// A message came over a channel.
  package mutating func receive(
    _ message: WireChannelMessage, on number: ChannelNumber, now: UInt64
  ) -> [ExchangeOutput] {
    var outputs = heard(on: number, now: now)
    // What the other side sent after a fault is nothing any more.
    guard channels[number] != nil else { return outputs }
    do throws(ProtocolViolation) {
      try take(message, number, now, &outputs)
      flush(&outputs)
    } catch {
      outputs += fail(number, error.fault, detail: error.detail, now: now)
    }
    return outputs
  }

  /// A message came that is not the exchange's: the peer lives. Closes the channel as too slow when
  /// the peer does not read what waits for it.
  package mutating func heard(on number: ChannelNumber, now: UInt64) -> [ExchangeOutput] {
    note(now)
    return channels.hear(number, now: now) ? [] : fail(number, .tooSlow, now: now)
  }

  private mutating func take(
    _ message: WireChannelMessage, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    guard let kind = message.kind else { throw ProtocolViolation(fault: .malformed) }
    switch kind {
    case .goodbye:
      // Whatever it says: the other side has closed.
      outputs += fail(number, .noError, now: now)
      return
    case .hello(let hello): return try take(hello, number, &outputs)
    default: guard channels.isOpen(number) else { throw ProtocolViolation(fault: .unexpectedMessage) }
    }
    switch kind {
    case .ping(let ping): outputs.append(.send(.with { $0.pong.number = ping.number }, on: number))
    case .pong: break
    case .request(let request): try received.take(request, number, channels, &outputs)
    case .requestWaiting(let message): try sent.takeWaiting(Identifier(wire: message.id), number, &outputs)
    case .accepted(let message): try sent.takeAccepted(Identifier(wire: message.id), number, &outputs)
    case .refused(let message):
      try sent.takeRefused(Identifier(wire: message.id), message.failure, number, &outputs)
    case .reply(let reply): try sent.takeReply(reply, number, &outputs)
    case .noReply(let message):
      try sent.takeEnd(
        Identifier(wire: message.id), message.isDelivered ? .replyIsDelivered : .noReply, number, &outputs)
    case .replyAccepted(let message):
      try received.takeReplyAccepted(Identifier(wire: message.id), channels, &outputs)
    case .cancel(let message):
      try received.takeCancel(
        Identifier(wire: message.id), message.afterAccepted, number, channels, &outputs)
    case .cancelled(let message):
      try sent.takeCancelled(Identifier(wire: message.id), message.done, number, &outputs)
    case .inquiry(let message): try take(message, number, now, &outputs)
    case .standing(let message):
      try sent.takeStanding(Identifier(wire: message.id), message.state, number, now: lastTime, &outputs)
    case .credit(let credit): try sent.takeCredit(credit.more, number)
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  private mutating func take(
    _ hello: WireChannelHello, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let process = try channels.take(hello, of: peerAppID, number)
    retry.tookHello()
    sent.begin(number, credit: Int(hello.requests))
    received.begin(process: process, channels, &outputs)
    sent.inquire(over: number, channels, &outputs)
    received.payCredit(channels, &outputs)
  }

  private mutating func take(
    _ inquiry: WireInquiry, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: inquiry.id)
    guard inquiry.tickets.count <= ExchangeLimits.inquiryTicketCountMax,
      inquiry.tickets.allSatisfy({ $0.count == Self.ticketByteCount }),
      !inquiry.tickets.contains(channels[number]?.ticket ?? Data())
    else { throw ProtocolViolation(fault: .malformed) }
    // The peer has closed them. What it sent there and is still on its way must not come after the answer.
    for other in channels.numbers(of: inquiry.tickets) { outputs += fail(other, .noError, now: now) }
    try received.takeInquiry(id, number, now: now, &channels, &outputs)
  }
}
