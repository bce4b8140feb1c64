import Foundation
import SodiumPrimitives
import Testing

@testable import ServiceWire

/// What one peer can make an exchange keep.
struct ExchangeLimitTests {
  private typealias Fixture = ExchangeFixture
  private let number = ExchangeFixture.number

  /// Request 1 is being handled.
  private func handling(
    _ count: UInt64 = 1, limits: ExchangeLimits = ExchangeLimits(), frame: UInt32 = 1 << 21
  ) -> Exchange {
    var exchange = Fixture.opened(limits: limits, frame: frame)
    for n in 1...count { handle(n, &exchange, number) }
    return exchange
  }

  private func handle(_ n: UInt64, _ exchange: inout Exchange, _ number: ChannelNumber) {
    _ = exchange.receive(.with { $0.request = Fixture.request(n) }, on: number, now: 0)
    _ = exchange.admit(Fixture.id(n))
    let hasBegun = exchange.begin(Fixture.id(n))
    #expect(hasBegun)
  }

  private func reply(_ n: UInt64, byteCount: Int) -> WireReply {
    .with {
      $0.id = Fixture.id(n).data
      $0.params = .with { $0.bytes = Data(count: byteCount) }
    }
  }

  private func failure(_ n: UInt64, _ limit: String) -> WireReply {
    .with {
      $0.id = Fixture.id(n).data
      $0.failure = .with {
        $0.error = 16
        $0.detail = limit
      }
    }
  }

  private func reopen(
    _ exchange: inout Exchange, _ n: UInt64, now: UInt64 = 0, process: Identifier = Fixture.process
  )
    -> [ExchangeOutput]
  {
    let outputs = exchange.channelOpened(ChannelNumber(n), ticket: Fixture.ticket(n), now: now)
    return outputs
      + exchange.receive(Fixture.hello(ticket: n, process: process), on: ChannelNumber(n), now: now)
  }

  // MARK: Replies that do not fit

  @Test func aReplyThatThePeerDoesNotTakeBecomesAnErrorOnce() throws {
    let fits =
      8192
      - (try WireChannelMessage.with { $0.reply = reply(1, byteCount: 8000) }.serializedData().count - 8000)
    var exchange = handling(frame: 8192)
    let longest = reply(1, byteCount: fits)
    #expect(try exchange.reply(longest, now: 0) == [.send(.with { $0.reply = longest }, on: number)])
    exchange = handling(frame: 8192)
    let instead = failure(1, "channel frame bytes")
    #expect(
      try exchange.reply(reply(1, byteCount: fits + 1), now: 0) == [
        .provider(Fixture.id(1), .replyRefused(instead.failure)),
        .send(.with { $0.reply = instead }, on: number),
      ])
    #expect(throws: ProtocolFault.unexpectedMessage) { try exchange.reply(reply(1, byteCount: 1), now: 0) }
  }

  @Test func aReplyBecomesAnErrorWhenThePeerComesBackWithSmallerFrames() throws {
    var exchange = handling()
    _ = try exchange.reply(reply(1, byteCount: 10_000), now: 0)
    let instead = failure(1, "channel frame bytes")
    for n: UInt64 in 2...3 {
      _ = exchange.channelClosed(ChannelNumber(n - 1), now: 0)
      let b = ChannelNumber(n)
      _ = exchange.channelOpened(b, ticket: Fixture.ticket(n), now: 0)
      _ = exchange.receive(Fixture.hello(ticket: n, frame: 8192), on: b, now: 0)
      let outputs = exchange.receive(.with { $0.inquiry.id = Fixture.id(1).data }, on: b, now: 0)
      #expect(outputs.last == .send(.with { $0.reply = instead }, on: b))
      #expect(outputs.count == (n == 2 ? 3 : 2), "the app hears of it once")
      #expect(exchange.brokenRules == [])
    }
  }

  @Test func theConsumerSeesAFailureInPlaceOfTheReply() throws {
    var exchange = Fixture.opened()
    let id = Fixture.id(1)
    _ = try exchange.submit(Fixture.request(1))
    _ = exchange.receive(.with { $0.accepted.id = id.data }, on: number, now: 0)
    let reply = failure(1, "channel frame bytes")
    #expect(
      exchange.receive(.with { $0.reply = reply }, on: number, now: 0) == [
        .consumer(id, .refused(reply.failure)), .send(.with { $0.replyAccepted.id = id.data }, on: number),
      ])
  }

  // MARK: What is kept for a peer

  @Test func keepsAsManyBytesOfRepliesAsTheLimitAndNotOneMore() throws {
    var limits = ExchangeLimits()
    limits.keptReplyByteCountMax =
      2 * reply(1, byteCount: 1000).keptByteCount + ReceivedRequests.answerByteCount
    var exchange = handling(3, limits: limits)
    #expect(try exchange.reply(reply(1, byteCount: 1000), now: 0).count == 1)
    var other = exchange
    let refused = try other.reply(reply(2, byteCount: 4000), now: 0)
    #expect(
      refused.first == .provider(Fixture.id(2), .replyRefused(failure(2, "kept reply bytes").failure)))
    #expect(try exchange.reply(reply(2, byteCount: 1000), now: 0).count == 1)
    other = exchange
    #expect(try other.reply(reply(3, byteCount: 1000), now: 0).count == 2)
    // An acknowledgement makes room; and so do replies that nobody has asked for, the oldest first.
    other = exchange
    _ = other.receive(.with { $0.replyAccepted.id = Fixture.id(1).data }, on: number, now: 0)
    #expect(try other.reply(reply(3, byteCount: 1000), now: 0).count == 1)
    _ = exchange.channelClosed(number, now: 0)
    let outputs = try exchange.reply(reply(3, byteCount: 1000), now: 0)
    #expect(outputs.count == 1)
    guard case .provider(_, .replyExpired)? = outputs.first else {
      Issue.record("kept: \(outputs)")
      return
    }
    #expect(exchange.brokenRules == [])
  }

  @Test func requestsOfAPeerAreCountedOverAllItsChannels() {
    var limits = ExchangeLimits()
    limits.requestCountMax = 4
    limits.peerRequestCountMax = 6
    var exchange = handling(3, limits: limits)
    _ = exchange.channelClosed(number, now: 0)
    var outputs = reopen(&exchange, 2)
    // Three are still being handled: three more, and the fourth when one of them is forgotten.
    #expect(Fixture.credit(outputs) == 3)
    #expect(Fixture.credit(exchange.channelOpened(ChannelNumber(3), ticket: Fixture.ticket(3), now: 0)) == 0)
    _ = exchange.channelClosed(ChannelNumber(3), now: 0)
    let b = ChannelNumber(2)
    for n: UInt64 in 11...13 {
      #expect(
        Fixture.fault(exchange.receive(.with { $0.request = Fixture.request(n) }, on: b, now: 0)) == nil)
    }
    var other = exchange
    #expect(
      Fixture.fault(other.receive(.with { $0.request = Fixture.request(14) }, on: b, now: 0))
        == .limitExceeded)
    _ = try? exchange.endWithoutReply(Fixture.id(1), now: 0)
    _ = exchange.receive(.with { $0.inquiry.id = Fixture.id(1).data }, on: b, now: 0)
    outputs = exchange.receive(.with { $0.replyAccepted.id = Fixture.id(1).data }, on: b, now: 0)
    #expect(outputs.contains(.send(.with { $0.credit.more = 1 }, on: b)))
    #expect(
      Fixture.fault(exchange.receive(.with { $0.request = Fixture.request(14) }, on: b, now: 0)) == nil)
    #expect(exchange.brokenRules == [])
  }

  @Test func nothingIsKeptForAProcessThatIsGone() throws {
    var exchange = handling(2)
    _ = try exchange.reply(reply(1, byteCount: 1), now: 0)
    _ = exchange.channelClosed(number, now: 0)
    #expect(reopen(&exchange, 2).count == 1)
    _ = exchange.channelClosed(ChannelNumber(2), now: 0)
    let outputs = reopen(&exchange, 3, process: Identifier(high: 8, low: 8))
    #expect(outputs.contains(.provider(Fixture.id(1), .replyExpired)))
    #expect(exchange.incomingCount == 1)
  }

  @Test func aPeerThatDoesNotAcknowledgeAReplyInTimeIsLetGo() throws {
    var exchange = handling()
    _ = try exchange.reply(reply(1, byteCount: 1), now: 0)
    // It answers pings all the time.
    for now: UInt64 in stride(from: 20_000, to: 600_000, by: 20_000) {
      _ = exchange.receive(.with { $0.pong.number = 1 }, on: number, now: now)
    }
    #expect(exchange.tick(now: 599_999) == [])
    #expect(
      exchange.tick(now: 600_000) == [
        .close(number, .timedOut, detail: "reply time"), .provider(Fixture.id(1), .replyExpired),
      ])
    #expect(exchange.isIdle)
  }

  // MARK: Texts

  @Test func textsAreAsLongAsTheirLimitAndNotOneByteMore() throws {
    for (count, isRight) in [(4096, true), (4097, false)] {
      let error = WireReply.with {
        $0.id = Fixture.id(1).data
        $0.error.text = String(repeating: "x", count: count)
      }
      var provider = handling()
      if isRight {
        #expect(try provider.reply(error, now: 0).count == 1)
      } else {
        #expect(throws: ProtocolFault.malformed) { try provider.reply(error, now: 0) }
        #expect(try provider.reply(reply(1, byteCount: 0), now: 0).count == 1, "nothing was changed")
      }
      let failed = WireReply.with {
        $0.id = Fixture.id(1).data
        $0.failure.detail = String(repeating: "x", count: count)
      }
      for message in [error, failed] {
        var consumer = Fixture.opened()
        _ = try consumer.submit(Fixture.request(1))
        _ = consumer.receive(.with { $0.accepted.id = Fixture.id(1).data }, on: number, now: 0)
        let fault = Fixture.fault(consumer.receive(.with { $0.reply = message }, on: number, now: 0))
        #expect(fault == (isRight ? nil : .malformed))
      }
      var consumer = Fixture.opened()
      _ = try consumer.submit(Fixture.request(1))
      let refused = WireChannelMessage.with {
        $0.refused.id = Fixture.id(1).data
        $0.refused.failure = failed.failure
      }
      #expect(Fixture.fault(consumer.receive(refused, on: number, now: 0)) == (isRight ? nil : .malformed))
    }
    for (count, isRight) in [(255, true), (256, false)] {
      for name in [\WireRequest.serviceID, \.version, \.method] {
        var request = Fixture.request(1)
        request[keyPath: name] = String(repeating: "1", count: count)
        var exchange = Fixture.opened()
        let fault = Fixture.fault(exchange.receive(.with { $0.request = request }, on: number, now: 0))
        #expect(fault == (isRight ? nil : .malformed))
        if isRight {
          #expect(try exchange.submit(request).count == 1)
        } else {
          #expect(throws: ProtocolFault.malformed) { try exchange.submit(request) }
        }
      }
    }
  }

  @Test func detailsOfAnErrorAreAnObjectOrNotThere() throws {
    for (details, isRight) in [
      (nil, true), (WireValue.with { $0.object = .init() }, true), (.with { $0.string = "x" }, false),
      (WireValue(), false),
    ] as [(WireValue?, Bool)] {
      var exchange = Fixture.opened()
      _ = try exchange.submit(Fixture.request(1))
      _ = exchange.receive(.with { $0.accepted.id = Fixture.id(1).data }, on: number, now: 0)
      let reply = WireReply.with {
        $0.id = Fixture.id(1).data
        $0.error.code = 5
        if let details { $0.error.details = details }
      }
      let fault = Fixture.fault(exchange.receive(.with { $0.reply = reply }, on: number, now: 0))
      #expect(fault == (isRight ? nil : .malformed))
    }
  }

  @Test func aLongDetailIsCutBetweenItsCharacters() {
    var exchange = Fixture.opened()
    _ = exchange.receive(.with { $0.request = Fixture.request(1) }, on: number, now: 0)
    let outputs = exchange.refuse(
      Fixture.id(1), .with { $0.detail = "x" + String(repeating: "é", count: 3000) })
    guard case .send(let message, _)? = outputs.first else {
      Issue.record("sent: \(outputs)")
      return
    }
    #expect(message.refused.failure.detail == "x" + String(repeating: "é", count: 2047))
  }

  // MARK: A peer that does not read, or does not answer

  @Test func noRequestGoesToAChannelThatIsFull() throws {
    var exchange = Fixture.opened()
    #expect(exchange.channelIsFull(number, true) == [])
    #expect(try exchange.submit(Fixture.request(1)) == [])
    #expect(
      exchange.channelIsFull(number, false) == [.send(.with { $0.request = Fixture.request(1) }, on: number)])
  }

  @Test func aPeerThatAsksWithoutReadingIsTooSlow() {
    var limits = ExchangeLimits()
    limits.fullChannelMessageCountMax = 3
    var exchange = Fixture.opened(limits: limits)
    let ping = WireChannelMessage.with { $0.ping.number = 1 }
    for _ in 0..<2 {
      _ = exchange.channelIsFull(number, true)
      for _ in 0..<3 { #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == nil) }
      // It has read.
      _ = exchange.channelIsFull(number, false)
      for _ in 0..<4 { #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == nil) }
    }
    _ = exchange.channelIsFull(number, true)
    for _ in 0..<3 { #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == nil) }
    #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == .tooSlow)
  }

  @Test func anOwnerKeepsLessForAPeerInASandbox() throws {
    var exchange = Fixture.opened()
    exchange.limitQueued(byteCount: 120, messageCount: 1)
    var sent = 0
    for n: UInt64 in 1...10 where try !exchange.submit(Fixture.request(n)).isEmpty { sent += 1 }
    #expect((1..<10).contains(sent))
    let ping = WireChannelMessage.with { $0.ping.number = 1 }
    #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == nil)
    #expect(Fixture.fault(exchange.receive(ping, on: number, now: 0)) == .tooSlow)
  }

  @Test func aPeerThatAnswersNoCancelGetsNoMoreRequests() throws {
    var limits = ExchangeLimits()
    limits.unansweredCancelCountMax = 3
    var exchange = Fixture.opened(limits: limits, credit: 100)
    let message = WireChannelMessage.self
    for n: UInt64 in 1...3 {
      #expect(try exchange.submit(Fixture.request(n)).count == 1)
      _ = exchange.receive(message.with { $0.accepted.id = Fixture.id(n).data }, on: number, now: 0)
      #expect(exchange.cancel(Fixture.id(n)).count == 2)
      _ = exchange.receive(message.with { $0.noReply.id = Fixture.id(n).data }, on: number, now: 0)
    }
    #expect(try exchange.submit(Fixture.request(4)) == [])
    let answered = WireChannelMessage.with { $0.cancelled.id = Fixture.id(1).data }
    #expect(
      exchange.receive(answered, on: number, now: 0) == [
        .send(.with { $0.request = Fixture.request(4) }, on: number)
      ])
  }

  @Test func requestsThatWereCancelledWhileTheyWaitedTakeNoRoom() throws {
    var exchange = Fixture.opened(credit: 0)
    _ = try exchange.submit(Fixture.request(1))
    for n: UInt64 in 2...5000 {
      _ = try exchange.submit(Fixture.request(n))
      _ = exchange.cancel(Fixture.id(n))
      #expect(exchange.brokenRules == [])
    }
    let outputs = exchange.receive(.with { $0.credit.more = 5 }, on: number, now: 0)
    #expect(outputs == [.send(.with { $0.request = Fixture.request(1) }, on: number)])
  }

  @Test func anInquiryNamesAsManyTicketsAsTheLimitAndNotOneMore() {
    let tickets = (0..<65).map { Fixture.ticket(100 + $0) }
    for (tickets, fault) in [
      (tickets.dropLast(), nil), (tickets[...], .malformed), ([Data(count: 31)], .malformed),
      ([Fixture.ticket(1)], .malformed),
    ] as [(ArraySlice<Data>, ProtocolFault?)] {
      var exchange = Fixture.opened()
      let inquiry = WireChannelMessage.with {
        $0.inquiry.id = Fixture.id(1).data
        $0.inquiry.tickets = Array(tickets)
      }
      #expect(Fixture.fault(exchange.receive(inquiry, on: number, now: 0)) == fault)
    }
  }
}
