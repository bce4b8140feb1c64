import Foundation
import Testing

@testable import ServiceWire

/// When an exchange asks for a channel, asks about requests, and gives up.
struct ExchangeLivenessTests {
  private let refusal = WireFailure.with { $0.error = 3 }

  @Test func aBeginningThatAlwaysFailsIsTriedAgainAfterPausesThatDouble() throws {
    var exchange = ExchangeFixture.closed()
    #expect(try exchange.submit(ExchangeFixture.request(1)) == [.connect])
    var now: UInt64 = 0
    var pauses: [UInt64] = []
    for n: UInt64 in 1...7 {
      let number = ChannelNumber(n)
      _ = exchange.channelOpened(number, ticket: ExchangeFixture.ticket(n), now: now)
      let outputs = exchange.channelClosed(number, now: now)
      if outputs == [.connect] {
        pauses.append(0)
        continue
      }
      #expect(outputs == [])
      let time = try #require(exchange.retryTime)
      // More requests change nothing.
      #expect(try exchange.submit(ExchangeFixture.request(100 + n)) == [])
      #expect(exchange.tick(now: time - 1) == [])
      #expect(exchange.tick(now: time) == [.connect])
      #expect(exchange.retryTime == nil)
      pauses.append(time - now)
      now = time
    }
    #expect(pauses == [0, 100, 200, 400, 800, 1600, 3200])
    // The eighth: nothing waits any longer.
    _ = exchange.channelOpened(ChannelNumber(8), ticket: ExchangeFixture.ticket(8), now: now)
    let outputs = exchange.channelClosed(ChannelNumber(8), now: now)
    #expect(outputs.count == 7)
    #expect(outputs.first == .consumer(ExchangeFixture.id(1), .lost(arrived: false)))
    #expect(exchange.isIdle)
    #expect(exchange.tick(now: now + 1_000_000) == [])
    #expect(try exchange.submit(ExchangeFixture.request(1)) == [.connect])
  }

  @Test func thePauseIsNeverLongerThanItsLimitAndBeginsAnewAfterAChannelThatLasted() throws {
    var limits = ExchangeLimits()
    limits.failedBeginningCountMax = 1000
    var exchange = ExchangeFixture.closed(limits: limits)
    _ = try exchange.submit(ExchangeFixture.request(1))
    var now: UInt64 = 0
    var last: UInt64 = 0
    for n: UInt64 in 1...12 {
      _ = exchange.channelOpened(ChannelNumber(n), ticket: ExchangeFixture.ticket(n), now: now)
      _ = exchange.channelClosed(ChannelNumber(n), now: now)
      guard let time = exchange.retryTime else { continue }
      last = time - now
      now = time
      #expect(exchange.tick(now: now) == [.connect])
    }
    #expect(last == 10_000)
    let n = ChannelNumber(13)
    _ = exchange.channelOpened(n, ticket: ExchangeFixture.ticket(13), now: now)
    _ = exchange.receive(ExchangeFixture.hello(ticket: 13), on: n, now: now)
    #expect(exchange.channelClosed(n, now: now + 10_000) == [.connect])
  }

  @Test func requestsWhoseFateIsUnknownAreAskedAboutAfterARefusal() throws {
    var exchange = ExchangeFixture.opened(credit: 1)
    _ = try exchange.submit(ExchangeFixture.request(1))
    _ = try exchange.submit(ExchangeFixture.request(2))
    #expect(exchange.channelClosed(ExchangeFixture.number, now: 0) == [.connect])
    #expect(
      exchange.channelRefused(refusal, now: 0) == [.consumer(ExchangeFixture.id(2), .refused(refusal))])
    #expect(exchange.tick(now: 99) == [])
    #expect(exchange.tick(now: 100) == [.connect])
    _ = exchange.channelRefused(refusal, now: 100)
    // Whoever asks now wants to know now.
    #expect(try exchange.submit(ExchangeFixture.request(3)) == [.connect])
    #expect(
      exchange.channelRefused(refusal, now: 150) == [.consumer(ExchangeFixture.id(3), .refused(refusal))])
    let time = try #require(exchange.retryTime)
    #expect(exchange.tick(now: time) == [.connect])
    let b = ChannelNumber(2)
    _ = exchange.channelOpened(b, ticket: ExchangeFixture.ticket(2), now: time)
    #expect(
      exchange.receive(ExchangeFixture.hello(ticket: 2), on: b, now: time) == [
        .send(
          .with {
            $0.inquiry.id = ExchangeFixture.id(1).data
            $0.inquiry.tickets = [ExchangeFixture.ticket(1)]
          }, on: b)
      ])
  }

  @Test func aRequestOutlivesAsManyChannelsAsTheLimitAndNotOneMore() throws {
    var exchange = ExchangeFixture.opened()
    _ = try exchange.submit(ExchangeFixture.request(1))
    var number = ExchangeFixture.number
    for n: UInt64 in 2...UInt64(ExchangeLimits.inquiryTicketCountMax) {
      _ = exchange.channelClosed(number, now: 20_000 * n)
      number = ChannelNumber(n)
      _ = exchange.channelOpened(number, ticket: ExchangeFixture.ticket(n), now: 20_000 * n)
      let outputs = exchange.receive(ExchangeFixture.hello(ticket: n), on: number, now: 20_000 * n)
      guard case .send(let message, _)? = outputs.first else {
        Issue.record("not asked after \(n) channels: \(outputs)")
        return
      }
      #expect(message.inquiry.tickets.count == Int(n) - 1)
      #expect(try message.frame(byteCountMax: ExchangeLimits.frameByteCountMin).count > 0)
    }
    _ = exchange.channelClosed(number, now: 2_000_000)
    number = ChannelNumber(100)
    _ = exchange.channelOpened(number, ticket: ExchangeFixture.ticket(100), now: 2_000_000)
    #expect(
      exchange.receive(ExchangeFixture.hello(ticket: 100), on: number, now: 2_000_000) == [
        .consumer(ExchangeFixture.id(1), .lost(arrived: true))
      ])
  }

  @Test func aCancelThatCameTooLateIsToldTheHandlerOverTheNextChannel() throws {
    for state in [WireRequestState.queued, .handling, .replied] {
      var exchange = ExchangeFixture.opened()
      let id = ExchangeFixture.id(1)
      _ = try exchange.submit(ExchangeFixture.request(1))
      _ = exchange.receive(.with { $0.accepted.id = id.data }, on: ExchangeFixture.number, now: 0)
      let cancel = WireChannelMessage.with {
        $0.cancel = .with {
          $0.id = id.data
          $0.afterAccepted = true
        }
      }
      #expect(
        exchange.cancel(id) == [.send(cancel, on: ExchangeFixture.number), .consumer(id, .notCancelled)])
      // Once, until it is answered.
      #expect(exchange.cancel(id) == [.consumer(id, .notCancelled)])
      _ = exchange.channelClosed(ExchangeFixture.number, now: 0)
      let b = ChannelNumber(2)
      _ = exchange.channelOpened(b, ticket: ExchangeFixture.ticket(2), now: 0)
      _ = exchange.receive(ExchangeFixture.hello(ticket: 2), on: b, now: 0)
      let standing = WireChannelMessage.with {
        $0.standing = .with {
          $0.id = id.data
          $0.state = state
        }
      }
      // The app knows already.
      #expect(
        exchange.receive(standing, on: b, now: 0) == (state == .replied ? [] : [.send(cancel, on: b)]))
    }
  }

  @Test func theHandlerHearsOfACancelOnce() {
    var exchange = ExchangeFixture.opened()
    let id = ExchangeFixture.id(1)
    _ = exchange.receive(
      .with { $0.request = ExchangeFixture.request(1) }, on: ExchangeFixture.number, now: 0)
    _ = exchange.admit(id)
    let hasBegun = exchange.begin(id)
    #expect(hasBegun)
    let cancel = WireChannelMessage.with { $0.cancel.id = id.data }
    #expect(
      exchange.receive(cancel, on: ExchangeFixture.number, now: 0).first == .provider(id, .cancelRequested))
    #expect(exchange.receive(cancel, on: ExchangeFixture.number, now: 0).count == 1)
  }

  /// The consumer is told before the answer, which follows when the provider is unlocked, or not in time.
  @Test func aLockedProviderSaysThatARequestWaits() throws {
    let (number, id) = (ExchangeFixture.number, ExchangeFixture.id(1))
    let waiting = WireChannelMessage.with { $0.requestWaiting.id = id.data }
    var provider = ExchangeFixture.opened()
    let request = ExchangeFixture.request(1)
    #expect(
      provider.receive(.with { $0.request = request }, on: number, now: 0)
        == [.provider(id, .arrived(request))])
    #expect(provider.hold(id) == [.send(waiting, on: number)])
    #expect(provider.admit(id) == [.send(.with { $0.accepted.id = id.data }, on: number)])
    #expect(provider.hold(id) == [])

    var consumer = ExchangeFixture.opened()
    #expect(ExchangeFixture.fault(consumer.receive(waiting, on: number, now: 0)) == .unexpectedMessage)
    consumer = ExchangeFixture.opened()
    _ = try consumer.submit(request)
    #expect(consumer.receive(waiting, on: number, now: 0) == [.consumer(id, .waitsForUnlock)])
    var cancelling = consumer
    _ = cancelling.cancel(id)
    #expect(cancelling.receive(waiting, on: number, now: 0) == [])
    _ = consumer.receive(.with { $0.accepted.id = id.data }, on: number, now: 0)
    #expect(ExchangeFixture.fault(consumer.receive(waiting, on: number, now: 0)) == .unexpectedMessage)
  }
}
