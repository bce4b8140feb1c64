import Foundation
import SodiumPrimitives

extension Exchange {
  /// A message came over a channel.
  package mutating func receive(
    _ message: WireChannelMessage, on number: ChannelNumber, now: UInt64
  ) -> [ExchangeOutput] {
    if let outputs = hear(number, now) { return outputs }
    var outputs: [ExchangeOutput] = []
    do throws(Fault) {
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

  struct Fault: Error {
    var fault: ProtocolFault
    var detail = ""
  }

  mutating func take(
    _ message: WireChannelMessage, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(Fault) {
    guard let kind = message.kind else { throw Fault(fault: .malformed) }
    switch kind {
    case .goodbye:
      // Whatever it says: the other side has closed.
      outputs += fail(number, .noError, now: now)
      return
    case .hello(let hello): return try take(hello, number, &outputs)
    default: guard channels[number]?.isOpen == true else { throw Fault(fault: .unexpectedMessage) }
    }
    switch kind {
    case .ping(let ping): outputs.append(.send(.with { $0.pong.number = ping.number }, on: number))
    case .pong: break
    case .request(let request): try take(request, number, &outputs)
    case .accepted(let message): try takeAccepted(Self.id(message.id), number, &outputs)
    case .refused(let message): try takeRefused(Self.id(message.id), message.failure, number, &outputs)
    case .reply(let reply): try takeReply(reply, number, &outputs)
    case .noReply(let message):
      try takeEnd(
        Self.id(message.id), message.isDelivered ? .replyIsDelivered : .noReply, number, &outputs)
    case .replyAccepted(let message): try takeReplyAccepted(Self.id(message.id), &outputs)
    case .cancel(let message): try takeCancel(Self.id(message.id), message.afterAccepted, number, &outputs)
    case .cancelled(let message): try takeCancelled(Self.id(message.id), message.done, number, &outputs)
    case .inquiry(let message): try takeInquiry(message, number, now, &outputs)
    case .standing(let message): try takeStanding(Self.id(message.id), message.state, number, &outputs)
    case .credit(let credit):
      guard let have = channels[number]?.credit, credit.more > 0,
        have + Int(credit.more) <= ExchangeLimits.creditMax
      else { throw Fault(fault: .malformed) }
      channels[number]?.credit = have + Int(credit.more)
    default: throw Fault(fault: .unexpectedMessage)
    }
  }

  static func id(_ bytes: Data) throws(Fault) -> Identifier {
    guard let id = Identifier(exactly: bytes) else { throw Fault(fault: .malformed) }
    return id
  }

  static func check(_ failure: WireFailure) throws(Fault) {
    guard failure.detail.utf8.count <= ExchangeLimits.textByteCountMax else { throw Fault(fault: .malformed) }
  }

  /// Whether a request, on its own or in an offer, is one.
  static func check(_ request: WireRequest) throws(Fault) {
    if case .UNRECOGNIZED = request.foreground { throw Fault(fault: .malformed) }
    guard hasNamesOfRightLength(request) else { throw Fault(fault: .malformed) }
  }

  /// Whether a reply, on its own or in an offer, is one.
  static func check(_ reply: WireReply) throws(Fault) {
    if case .UNRECOGNIZED = reply.foreground { throw Fault(fault: .malformed) }
    switch reply.result {
    case .failure(let failure): try check(failure)
    case .error(let error):
      guard error.text.utf8.count <= ExchangeLimits.textByteCountMax else { throw Fault(fault: .malformed) }
      if error.hasDetails {
        guard case .object? = error.details.kind else { throw Fault(fault: .malformed) }
      }
    case .params, nil: break
    }
  }

  static func hasNamesOfRightLength(_ request: WireRequest) -> Bool {
    [request.serviceID, request.version, request.method].allSatisfy {
      $0.utf8.count <= ExchangeLimits.nameByteCountMax
    }
  }

  /// As much of a text as may be sent.
  static func prefix(_ text: String) -> String {
    guard text.utf8.count > ExchangeLimits.textByteCountMax else { return text }
    var end = text.utf8.index(text.startIndex, offsetBy: ExchangeLimits.textByteCountMax)
    while end.samePosition(in: text.unicodeScalars) == nil { end = text.utf8.index(before: end) }
    return String(text.unicodeScalars[..<end])
  }

  mutating func take(
    _ hello: WireChannelHello, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(Fault) {
    guard var channel = channels[number], !channel.isOpen else { throw Fault(fault: .unexpectedMessage) }
    guard hello.version >= 1 else { throw Fault(fault: .versionNotSupported) }
    guard hello.ticket == channel.ticket else { throw Fault(fault: .ticketRefused) }
    guard hello.appID.utf8.elementsEqual(peerAppID.utf8) else { throw Fault(fault: .certificateNotFound) }
    guard let process = Identifier(exactly: hello.process), Int(hello.requests) <= ExchangeLimits.creditMax,
      hello.frameByteCount >= ExchangeLimits.frameByteCountMin, hello.slots <= BulkSlots.countMax
    else { throw Fault(fault: .malformed) }
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
