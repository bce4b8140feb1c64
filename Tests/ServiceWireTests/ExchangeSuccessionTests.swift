import Foundation
import Testing

@testable import ServiceWire

/// Requests when one channel follows another.
struct ExchangeSuccessionTests {
  private typealias Fixture = ExchangeFixture
  private let a = ExchangeFixture.number
  private let b = ChannelNumber(2)

  private func open(_ number: ChannelNumber, _ exchange: inout Exchange, now: UInt64 = 0)
    -> [ExchangeOutput]
  {
    _ = exchange.channelOpened(number, ticket: Fixture.ticket(number.number), now: now)
    return exchange.receive(Fixture.hello(ticket: number.number), on: number, now: now)
  }

  private func standing(_ n: UInt64, _ state: WireRequestState) -> WireChannelMessage {
    .with {
      $0.standing = .with {
        $0.id = Fixture.id(n).data
        $0.state = state
      }
    }
  }

  private func request(_ n: UInt64, on number: ChannelNumber) -> ExchangeOutput {
    .send(.with { $0.request = Fixture.request(n) }, on: number)
  }

  // MARK: Order

  @Test func requestsStayOnTheirChannelUntilWhatWasSentThereHasArrived() throws {
    var exchange = Fixture.opened()
    _ = try exchange.submit(Fixture.request(1))
    #expect(open(b, &exchange) == [])
    #expect(try exchange.submit(Fixture.request(2)) == [request(2, on: a)])
    _ = exchange.cancel(Fixture.id(2))
    _ = exchange.receive(.with { $0.accepted.id = Fixture.id(1).data }, on: a, now: 0)
    #expect(try exchange.submit(Fixture.request(3)) == [request(3, on: a)])
    _ = exchange.receive(.with { $0.accepted.id = Fixture.id(2).data }, on: a, now: 0)
    _ = exchange.receive(.with { $0.refused.id = Fixture.id(3).data }, on: a, now: 0)
    #expect(try exchange.submit(Fixture.request(4)) == [request(4, on: b)])
    // And stay there.
    #expect(try exchange.submit(Fixture.request(5)) == [request(5, on: b)])
    #expect(exchange.brokenRules == [])
  }

  @Test func requestsGoOverTheNewChannelWhenTheOldOneBreaks() throws {
    var exchange = Fixture.opened()
    _ = try exchange.submit(Fixture.request(1))
    _ = open(b, &exchange)
    _ = exchange.channelIsFull(a, true)
    #expect(try exchange.submit(Fixture.request(2)) == [])
    let outputs = exchange.channelClosed(a, now: 0)
    #expect(outputs.count == 2)
    #expect(outputs.last == request(2, on: b))
  }

  // MARK: Sending again

  @Test func aRequestThatNeverArrivedIsSentAgainOnce() throws {
    var exchange = Fixture.opened()
    _ = try exchange.submit(Fixture.request(1))
    _ = exchange.channelClosed(a, now: 0)
    #expect(open(b, &exchange).count == 1)
    #expect(exchange.receive(standing(1, .unheard), on: b, now: 0) == [request(1, on: b)])
    #expect(exchange.brokenRules == [])
    var accepted = exchange
    #expect(
      accepted.receive(.with { $0.accepted.id = Fixture.id(1).data }, on: b, now: 0) == [
        .consumer(Fixture.id(1), .accepted)
      ])
    _ = exchange.channelClosed(b, now: 0)
    let c = ChannelNumber(3)
    let outputs = open(c, &exchange)
    guard case .send(let message, _)? = outputs.first else {
      Issue.record("not asked: \(outputs)")
      return
    }
    #expect(message.inquiry.tickets == [Fixture.ticket(2)])
    #expect(
      exchange.receive(standing(1, .unheard), on: c, now: 0) == [
        .consumer(Fixture.id(1), .lost(arrived: false))
      ])
    #expect(exchange.isIdle)
  }

  @Test func aRequestThatWaitsForItsSecondSendingCanBeCancelled() throws {
    var exchange = Fixture.opened()
    _ = try exchange.submit(Fixture.request(1))
    _ = exchange.channelClosed(a, now: 0)
    _ = open(b, &exchange)
    _ = exchange.channelIsFull(b, true)
    #expect(exchange.receive(standing(1, .unheard), on: b, now: 0) == [])
    #expect(exchange.cancel(Fixture.id(1)) == [.consumer(Fixture.id(1), .cancelled)])
    #expect(exchange.brokenRules == [])
  }

  @Test func whatWasAcceptedOrCancelledOrIsTooOldIsNotSentAgain() throws {
    for (accepts, cancels, sent, now, event) in [
      (true, false, 0, 1, .lost(arrived: true)), (false, true, 0, 1, .cancelled),
      (false, false, 0, 600_000, .lost(arrived: false)), (false, false, 1, 600_000, nil),
    ] as [(Bool, Bool, UInt64, UInt64, ConsumerEvent?)] {
      var exchange = Fixture.opened()
      _ = exchange.tick(now: sent)
      _ = try exchange.submit(Fixture.request(1))
      if accepts { _ = exchange.receive(.with { $0.accepted.id = Fixture.id(1).data }, on: a, now: sent) }
      _ = exchange.channelClosed(a, now: now)
      if cancels { _ = exchange.cancel(Fixture.id(1)) }
      _ = open(b, &exchange, now: now)
      let expected: ExchangeOutput = event.map { .consumer(Fixture.id(1), $0) } ?? request(1, on: b)
      #expect(exchange.receive(standing(1, .unheard), on: b, now: now) == [expected])
    }
  }

  /// Or its consumer would send it again, and it would be handled twice.
  @Test func aRequestWhoseReplyWasGivenUpIsNotForgotten() throws {
    var limits = ExchangeLimits()
    limits.keptReplyByteCountMax = 6200
    var exchange = Fixture.opened(limits: limits)
    for n: UInt64 in 1...2 {
      _ = exchange.receive(.with { $0.request = Fixture.request(n) }, on: a, now: 0)
      _ = exchange.admit(Fixture.id(n))
      let hasBegun = exchange.begin(Fixture.id(n))
      #expect(hasBegun)
    }
    _ = exchange.channelClosed(a, now: 0)
    for n: UInt64 in 1...2 {
      let reply = WireReply.with {
        $0.id = Fixture.id(n).data
        $0.params = .with { $0.bytes = Data(count: 2000) }
      }
      #expect(
        try exchange.reply(reply, now: 0) == (n == 1 ? [] : [.provider(Fixture.id(1), .replyExpired)]))
    }
    _ = open(b, &exchange)
    let outputs = exchange.receive(.with { $0.inquiry.id = Fixture.id(1).data }, on: b, now: 0)
    #expect(outputs.first == .send(standing(1, .replied), on: b))
    guard outputs.count == 2, case .send(let message, _) = outputs[1] else {
      Issue.record("answered: \(outputs)")
      return
    }
    #expect(message.reply.failure.detail == "kept reply bytes")
    // The app has heard of it.
    #expect(exchange.receive(.with { $0.replyAccepted.id = Fixture.id(1).data }, on: b, now: 0) == [])
    #expect(exchange.brokenRules == [])
  }
}
