import Foundation
import Testing

@testable import ServiceWire

/// How many bytes an exchange puts out, and takes, before it waits.
struct ExchangePacingTests {
  private typealias Fixture = ExchangeFixture
  private let number = ExchangeFixture.number

  private func large(_ n: UInt64, byteCount: Int = 1 << 20) -> WireRequest {
    .with {
      $0.id = Fixture.id(n).data
      $0.params = .with { $0.bytes = Data(count: byteCount) }
    }
  }

  private func reply(_ n: UInt64, byteCount: Int = 1 << 20) -> WireReply {
    .with {
      $0.id = Fixture.id(n).data
      $0.params = .with { $0.bytes = Data(count: byteCount) }
    }
  }

  private func sent(_ outputs: [ExchangeOutput]) -> [WireChannelMessage] {
    outputs.compactMap { if case .send(let message, _) = $0 { message } else { nil } }
  }

  private func waits(_ outputs: [ExchangeOutput], on number: ChannelNumber) -> Bool {
    outputs.last == .awaitRoom(on: number)
  }

  private func handle(_ n: UInt64, _ exchange: inout Exchange) {
    _ = exchange.receive(.with { $0.request = Fixture.request(n) }, on: number, now: 0)
    _ = exchange.admit(Fixture.id(n))
    let hasBegun = exchange.begin(Fixture.id(n))
    #expect(hasBegun)
  }

  // MARK: What is sent

  @Test func requestsThatWaitedForAChannelAreSentAsThereIsRoom() throws {
    var exchange = Fixture.closed()
    for n: UInt64 in 1...17 { _ = try exchange.submit(large(n)) }
    _ = exchange.channelOpened(number, ticket: Fixture.ticket(1), now: 0)
    var outputs = exchange.receive(Fixture.hello(ticket: 1, credit: 100), on: number, now: 0)
    var ids: [Data] = []
    var rounds = 0
    while !outputs.isEmpty {
      let messages = sent(outputs)
      let byteCount = messages.reduce(0) { $0 + $1.encodedByteCount }
      #expect(byteCount <= exchange.limits.queuedByteCountMax + exchange.limits.frameByteCountMax)
      #expect(exchange.brokenRules == [])
      ids += messages.map(\.request.id)
      rounds += 1
      guard waits(outputs, on: number) else { break }
      outputs = exchange.channelIsFull(number, false)
    }
    #expect(ids == (1...17).map { Fixture.id($0).data })
    #expect(rounds == 5)
  }

  @Test func asManyBytesAsTheLimitNeedNoRoomAndOneMoreDoes() throws {
    let byteCount = WireChannelMessage.with { $0.request = large(1, byteCount: 1000) }.encodedByteCount
    for (limit, hasToWait) in [(2 * byteCount, false), (2 * byteCount - 1, true)] {
      var limits = ExchangeLimits()
      limits.queuedByteCountMax = limit
      var exchange = Fixture.opened(limits: limits)
      _ = try exchange.submit(large(1, byteCount: 1000))
      #expect(waits(try exchange.submit(large(2, byteCount: 1000)), on: number) == hasToWait)
      #expect(try exchange.submit(Fixture.request(3)).isEmpty == hasToWait)
    }
  }

  @Test func repliesThatAreSentAgainWaitForRoomAndKeepTheirOrder() throws {
    var exchange = Fixture.opened()
    for n: UInt64 in 1...17 {
      handle(n, &exchange)
    }
    _ = exchange.channelClosed(number, now: 0)
    for n: UInt64 in 1...17 { _ = try exchange.reply(reply(n), now: 0) }
    let b = ChannelNumber(2)
    _ = exchange.channelOpened(b, ticket: Fixture.ticket(2), now: 0)
    _ = exchange.receive(Fixture.hello(ticket: 2), on: b, now: 0)
    var outputs: [ExchangeOutput] = []
    for n: UInt64 in 1...17 {
      outputs += exchange.receive(.with { $0.inquiry.id = Fixture.id(n).data }, on: b, now: 0)
    }
    #expect(sent(outputs).count { $0.standing.state == .replied } == 17, "what is small does not wait")
    var ids = sent(outputs).compactMap { if case .reply(let reply)? = $0.kind { reply.id } else { nil } }
    #expect(ids.count == 4)
    var early = exchange
    #expect(
      Fixture.fault(early.receive(.with { $0.replyAccepted.id = Fixture.id(17).data }, on: b, now: 0))
        == .unexpectedMessage)
    // They wait for room and not for the consumer: that is no fault of its own.
    for n: UInt64 in 1...4 {
      _ = exchange.receive(.with { $0.replyAccepted.id = Fixture.id(n).data }, on: b, now: 0)
    }
    #expect(Fixture.fault(exchange.tick(now: 600_000)) == nil)
    for _ in 0..<4 {
      #expect(exchange.brokenRules == [])
      ids += sent(exchange.channelIsFull(b, false)).map(\.reply.id)
    }
    #expect(ids == (1...17).map { Fixture.id($0).data })
  }

  @Test func anAnswerThatWaitedWhenItsChannelBrokeIsAskedForOverTheNext() throws {
    var exchange = Fixture.opened()
    handle(1, &exchange)
    handle(2, &exchange)
    _ = exchange.channelIsFull(number, true)
    #expect(try exchange.reply(reply(1), now: 0) == [])
    #expect(try exchange.endWithoutReply(Fixture.id(2), now: 0) == [])
    _ = exchange.channelClosed(number, now: 0)
    #expect(exchange.brokenRules == [])
    let b = ChannelNumber(2)
    _ = exchange.channelOpened(b, ticket: Fixture.ticket(2), now: 0)
    _ = exchange.receive(Fixture.hello(ticket: 2), on: b, now: 0)
    for n: UInt64 in 1...2 {
      let outputs = exchange.receive(.with { $0.inquiry.id = Fixture.id(n).data }, on: b, now: 0)
      #expect(sent(outputs).count == 2)
    }
  }

  // MARK: What is taken

  /// A list of small values costs more memory than its bytes.
  @Test func countsTheValuesOfARequest() {
    var (one, many) = (Fixture.request(1), Fixture.request(1))
    one.params.bytes = Data(count: 4000)
    many.params.array.elements = Array(repeating: .with { $0.boolean = true }, count: 1000)
    #expect(many.keptByteCount > one.keptByteCount + 59_000)
  }

  @Test func takesAsManyBytesOfRequestsAsTheLimitAndNotOneMore() throws {
    var limits = ExchangeLimits()
    #expect(limits.requestByteCountMax == 64 << 20)
    limits.requestByteCountMax = 2 * large(1, byteCount: 1000).keptByteCount
    var exchange = Fixture.opened(limits: limits)
    for n: UInt64 in 1...2 {
      #expect(
        exchange.receive(.with { $0.request = large(n, byteCount: 1000) }, on: number, now: 0) == [
          .provider(Fixture.id(n), .arrived(large(n, byteCount: 1000)))
        ])
    }
    let small = WireChannelMessage.with { $0.request = Fixture.request(3) }
    let outputs = exchange.receive(small, on: number, now: 0)
    #expect(sent(outputs).first?.refused.failure.error == ProtocolFault.limitExceeded.rawValue)
    #expect(sent(outputs).first?.refused.failure.detail == "request bytes of one peer")
    #expect(exchange.brokenRules == [])
    // One that was refused, or answered, takes no room any more.
    var other = exchange
    _ = other.refuse(Fixture.id(1), WireFailure())
    #expect(other.receive(small, on: number, now: 0) == [.provider(Fixture.id(3), .arrived(small.request))])
    _ = exchange.admit(Fixture.id(1))
    let hasBegun = exchange.begin(Fixture.id(1))
    #expect(hasBegun)
    _ = try exchange.endWithoutReply(Fixture.id(1), now: 0)
    #expect(
      exchange.receive(small, on: number, now: 0) == [.provider(Fixture.id(3), .arrived(small.request))])
    #expect(exchange.brokenRules == [])
  }
}
