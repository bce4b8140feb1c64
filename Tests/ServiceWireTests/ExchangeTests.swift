import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import ServiceWire

struct ExchangeTests {
  /// A seed that failed is printed, and goes into ``failedBefore``.
  static let failedBefore: [UInt64] = []

  static let seeds: [UInt64] =
    failedBefore
    + (ProcessInfo.processInfo.environment["OPENDYNAMICS_SEED"].flatMap(UInt64.init).map { [$0] }
      ?? (0..<TestEffort.count(5, long: 20, all: 5000)).map { _ in
        UInt64.random(in: 0...UInt64.max)
      })

  private static func problems(seed: UInt64, credit: Int, breaks: Bool) -> [String] {
    var limits = ExchangeLimits()
    limits.requestCountMax = credit
    limits.peerRequestCountMax = credit + credit / 2 + 1
    limits.unansweredCancelCountMax = 2
    limits.queuedRequestCountMax = 1_000_000
    limits.replyTime = 60_000
    limits.queuedByteCountMax = 120
    limits.requestByteCountMax = 45_000
    let world = ExchangeWorld(seed: seed, limits: limits)
    world.breaks = breaks
    for _ in 0..<600 { world.step() }
    world.settle()
    if !world.problems.isEmpty { print(world.trace.joined(separator: "\n")) }
    return world.problems
  }

  @Test func anyOrderOfEventsKeepsThePromises() {
    for seed in Self.seeds {
      for credit in [1, 3, 1024] {
        for breaks in [false, true] {
          let problems = Self.problems(seed: seed, credit: credit, breaks: breaks)
          #expect(problems.isEmpty, "seed \(seed), credit \(credit), breaks \(breaks)")
          if !problems.isEmpty { return }
        }
      }
    }
  }

  @Test func withoutBreaksNothingIsLeftAndEveryCreditComesBack() {
    for seed in Self.seeds.prefix(50) {
      var limits = ExchangeLimits()
      limits.requestCountMax = 3
      let world = ExchangeWorld(seed: seed, limits: limits)
      world.breaks = false
      for _ in 0..<400 { world.step() }
      world.settle()
      for side in ExchangeWorld.Side.allCases {
        #expect(world.exchanges[side]?.isIdle == true, "seed \(seed)")
        // Three more are sent at once: nobody has lost a credit.
        for _ in 0..<4 { world.submit(side) }
      }
      let waiting = world.pipes.values.flatMap { $0.messages.values.map { $0.count } }
      if !world.pipes.isEmpty { #expect(waiting == [3, 3], "seed \(seed)") }
    }
  }

  // MARK: One step at a time

  private let a = ChannelNumber(1)
  private let ticket = Data(repeating: 9, count: 32)
  private let process = Identifier(high: 1, low: 2)

  private func opened(limits: ExchangeLimits = ExchangeLimits(), credit: UInt32 = 8, frame: UInt32 = 1 << 21)
    -> Exchange
  {
    var exchange = Exchange(
      ownAppID: "com.example.a", peerAppID: "com.example.b", process: Identifier(high: 0, low: 1),
      limits: limits)
    _ = exchange.channelOpened(a, ticket: ticket, now: 0)
    let outputs = exchange.receive(hello(credit: credit, frame: frame), on: a, now: 0)
    #expect(outputs == [])
    return exchange
  }

  private func hello(
    credit: UInt32 = 8, frame: UInt32 = 1 << 21, version: UInt32 = Exchange.versionMax,
    appID: String = "com.example.b",
    ticket: Data? = nil, process: Data? = nil, slots: UInt32 = 0
  ) -> WireChannelMessage {
    .with {
      $0.hello = .with {
        $0.version = version
        $0.ticket = ticket ?? self.ticket
        $0.appID = appID
        $0.process = process ?? self.process.data
        $0.requests = credit
        $0.frameByteCount = frame
        $0.slots = slots
      }
    }
  }

  private func request(_ n: UInt64) -> WireRequest { .with { $0.id = Identifier(high: 0, low: n).data } }

  private func fault(_ outputs: [ExchangeOutput]) -> ProtocolFault? {
    for case .close(_, let fault, _) in outputs { return fault }
    return nil
  }

  @Test func saysWhatItTakes() {
    var limits = ExchangeLimits()
    limits.attachmentCountMax = 5
    limits.slotCountMax = 6
    var exchange = Exchange(
      ownAppID: "com.example.a", peerAppID: "com.example.b", process: process, limits: limits)
    let expected = WireChannelMessage.with {
      $0.hello = .with {
        $0.version = Exchange.versionMax
        $0.ticket = ticket
        $0.appID = "com.example.a"
        $0.requests = 1024
        $0.frameByteCount = UInt32(limits.frameByteCountMax)
        $0.attachments = 5
        $0.process = process.data
        $0.slots = 6
      }
    }
    #expect(exchange.channelOpened(a, ticket: ticket, now: 0) == [.send(expected, on: a)])
  }

  @Test func refusesHellosThatAreNotOfTheIntroduction() {
    let cases: [(WireChannelMessage, ProtocolFault)] = [
      (hello(version: 0), .versionNotSupported), (hello(version: 1), .versionNotSupported),
      (hello(appID: "com.example.c"), .certificateNotFound),
      (hello(ticket: Data(repeating: 8, count: 32)), .ticketRefused), (hello(ticket: Data()), .ticketRefused),
      (hello(process: Data(repeating: 1, count: 15)), .malformed), (hello(frame: 8191), .malformed),
      (hello(slots: 1025), .malformed),
      (hello(credit: 1 << 20 + 1), .malformed), (.with { $0.ping.number = 1 }, .unexpectedMessage),
      (WireChannelMessage(), .malformed),
    ]
    for (message, expected) in cases {
      var exchange = Exchange(
        ownAppID: "com.example.a", peerAppID: "com.example.b", process: Identifier(high: 0, low: 1))
      _ = exchange.channelOpened(a, ticket: ticket, now: 0)
      #expect(fault(exchange.receive(message, on: a, now: 0)) == expected)
      #expect(exchange.channelCount == 0)
      #expect(exchange.receive(hello(), on: a, now: 0) == [])
    }
    var exchange = opened()
    #expect(fault(exchange.receive(hello(), on: a, now: 0)) == .unexpectedMessage)
    exchange = opened(credit: 1 << 20)
    #expect(fault(exchange.receive(.with { $0.credit.more = 1 }, on: a, now: 0)) == .malformed)
  }

  @Test func closesOnMessagesThatMayNotComeNow() {
    let id = Identifier(high: 0, low: 1).data
    let messages: [WireChannelMessage] = [
      .with { $0.accepted.id = id }, .with { $0.refused.id = id }, .with { $0.reply.id = id },
      .with { $0.noReply.id = id },
      .with { $0.replyAccepted.id = id }, .with { $0.cancelled.id = id }, .with { $0.standing.id = id },
    ]
    for message in messages {
      var exchange = opened()
      #expect(fault(exchange.receive(message, on: a, now: 0)) == .unexpectedMessage)
    }
    for message: WireChannelMessage in [
      .with { $0.accepted.id = id.dropLast() }, .with { $0.request.id = Data() },
      .with { $0.credit.more = 0 },
      .with {
        $0.request = .with {
          $0.id = id
          $0.foreground = .UNRECOGNIZED(9)
        }
      },
    ] {
      var exchange = opened()
      #expect(fault(exchange.receive(message, on: a, now: 0)) == .malformed)
    }
    // Sent and not accepted: no reply yet. Accepted: not twice, and not refused any more.
    var exchange = opened()
    _ = try? exchange.submit(request(1))
    var other = exchange
    #expect(fault(other.receive(.with { $0.reply.id = id }, on: a, now: 0)) == .unexpectedMessage)
    #expect(
      exchange.receive(.with { $0.accepted.id = id }, on: a, now: 0) == [
        .consumer(Identifier(high: 0, low: 1), .accepted)
      ])
    for message: WireChannelMessage in [
      .with { $0.accepted.id = id }, .with { $0.refused.id = id },
      .with {
        $0.cancelled = .with {
          $0.id = id
          $0.done = true
        }
      },
    ] {
      other = exchange
      #expect(fault(other.receive(message, on: a, now: 0)) == .unexpectedMessage)
    }
  }

  @Test func filesAreOfDeliveries() throws {
    let id = Identifier(high: 0, low: 1)
    var withFiles = request(1)
    withFiles.attachments = 1
    var exchange = opened()
    #expect(throws: ProtocolFault.unexpectedMessage) { try exchange.submit(withFiles) }
    #expect(fault(exchange.receive(.with { $0.request = withFiles }, on: a, now: 0)) == .unexpectedMessage)
    exchange = opened()
    _ = try exchange.submit(request(1))
    _ = exchange.receive(.with { $0.accepted.id = id.data }, on: a, now: 0)
    var other = exchange
    let reply = WireReply.with {
      $0.id = id.data
      $0.attachments = 1
    }
    #expect(fault(other.receive(.with { $0.reply = reply }, on: a, now: 0)) == .unexpectedMessage)
    // The consumer hears that a delivery brings the reply, in place of no reply.
    let noReply = WireChannelMessage.with {
      $0.noReply = .with {
        $0.id = id.data
        $0.isDelivered = true
      }
    }
    #expect(
      exchange.receive(noReply, on: a, now: 0)
        == [.consumer(id, .replyIsDelivered), .send(.with { $0.replyAccepted.id = id.data }, on: a)])

    exchange = opened()
    _ = exchange.receive(.with { $0.request = request(1) }, on: a, now: 0)
    _ = exchange.admit(id)
    let begins = exchange.begin(id)
    #expect(begins)
    #expect(throws: ProtocolFault.unexpectedMessage) { try exchange.reply(reply, now: 0) }
    #expect(try exchange.endWithoutReply(id, isDelivered: true, now: 0) == [.send(noReply, on: a)])
    // And once more over the next channel.
    _ = exchange.channelClosed(a, now: 0)
    let b = ChannelNumber(2)
    _ = exchange.channelOpened(b, ticket: ticket, now: 0)
    _ = exchange.receive(hello(), on: b, now: 0)
    #expect(exchange.receive(.with { $0.inquiry.id = id.data }, on: b, now: 0).last == .send(noReply, on: b))
  }

  @Test func aPeerThatOnlyDeliversIsPinged() {
    var exchange = opened()
    #expect(exchange.tick(now: 29_999, isDelivering: true) == [])
    #expect(
      exchange.tick(now: 30_000, isDelivering: true) == [.send(.with { $0.ping.number = 30_000 }, on: a)])
    #expect(exchange.heard(on: a, now: 30_001) == [])
    #expect(exchange.tick(now: 60_000, isDelivering: true) == [])
    _ = exchange.channelIsFull(a, true)
    for _ in 0..<exchange.limits.fullChannelMessageCountMax {
      #expect(exchange.heard(on: a, now: 60_000) == [])
    }
    #expect(fault(exchange.heard(on: a, now: 60_000)) == .tooSlow)
  }

  @Test func takesAsManyRequestsAsItGrantedAndNotOneMore() {
    var limits = ExchangeLimits()
    limits.requestCountMax = 4
    var exchange = opened(limits: limits)
    for n: UInt64 in 1...4 {
      #expect(fault(exchange.receive(.with { $0.request = request(n) }, on: a, now: 0)) == nil)
    }
    var other = exchange
    #expect(fault(other.receive(.with { $0.request = request(5) }, on: a, now: 0)) == .limitExceeded)
    #expect(exchange.grant(1, on: a) == [.send(.with { $0.credit.more = 1 }, on: a)])
    #expect(fault(exchange.receive(.with { $0.request = request(5) }, on: a, now: 0)) == nil)
    #expect(fault(exchange.receive(.with { $0.request = request(5) }, on: a, now: 0)) == .unexpectedMessage)
  }

  @Test func queuesAsManyAsTheLimitAndNotOneMore() throws {
    var limits = ExchangeLimits()
    limits.queuedRequestCountMax = 3
    var exchange = Exchange(
      ownAppID: "com.example.a", peerAppID: "com.example.b", process: process, limits: limits)
    #expect(try exchange.submit(request(1)) == [.connect])
    for n: UInt64 in 2...3 { #expect(try exchange.submit(request(n)) == []) }
    #expect(throws: ProtocolFault.limitExceeded) { try exchange.submit(request(4)) }
    #expect(throws: ProtocolFault.malformed) { try exchange.submit(request(3)) }
    #expect(
      exchange.cancel(Identifier(high: 0, low: 2)) == [.consumer(Identifier(high: 0, low: 2), .cancelled)])
    #expect(try exchange.submit(request(4)) == [])
    let refusal = WireFailure.with { $0.error = 3 }
    #expect(
      exchange.channelRefused(refusal, now: 0)
        == [1, 3, 4].map { .consumer(Identifier(high: 0, low: $0), .refused(refusal)) })
    #expect(exchange.isIdle)
    #expect(try exchange.submit(request(1)) == [.connect])
    // What came later asks once more.
    #expect(try exchange.submit(request(5)) == [])
    #expect(
      exchange.channelRefused(refusal, besides: [Identifier(high: 0, low: 5)], now: 0)
        == [.consumer(Identifier(high: 0, low: 1), .refused(refusal)), .connect])
    #expect(
      exchange.channelRefused(refusal, now: 0) == [.consumer(Identifier(high: 0, low: 5), .refused(refusal))])
    #expect(exchange.isIdle)
  }

  @Test func sendsNothingThatThePeerDoesNotTake() throws {
    var exchange = opened(frame: 8192)
    var large = request(1)
    large.params = .with { $0.bytes = Data(repeating: 1, count: 8192) }
    let outputs = try exchange.submit(large)
    guard case .consumer(_, .refused(let failure))? = outputs.first else {
      Issue.record("sent: \(outputs)")
      return
    }
    #expect(failure.error == ProtocolFault.limitExceeded.rawValue)
    #expect(failure.detail == "channel frame bytes")
    #expect(try exchange.submit(request(2)).count == 1)
  }

  @Test func aChannelThatSaysNothingIsBrokenInTime() throws {
    var exchange = Exchange(ownAppID: "com.example.a", peerAppID: "com.example.b", process: process)
    _ = exchange.channelOpened(a, ticket: ticket, now: 0)
    #expect(exchange.tick(now: 9_999) == [])
    #expect(fault(exchange.tick(now: 10_000)) == .timedOut)
    exchange = opened()
    #expect(exchange.tick(now: 1_000_000) == [])  // nothing is under way
    exchange = opened()
    _ = try exchange.submit(request(1))
    #expect(exchange.tick(now: 29_999) == [])
    #expect(exchange.tick(now: 30_000) == [.send(.with { $0.ping.number = 30_000 }, on: a)])
    var answered = exchange
    #expect(answered.receive(.with { $0.pong.number = 30_000 }, on: a, now: 30_001) == [])
    #expect(answered.tick(now: 60_000) == [])
    #expect(exchange.tick(now: 59_999) == [])
    #expect(fault(exchange.tick(now: 60_000)) == .timedOut)
    _ = exchange.channelRefused(.with { $0.error = 3 }, now: 60_000)
    #expect(
      !exchange.tick(now: 659_999).contains(.consumer(Identifier(high: 0, low: 1), .lost(arrived: true))))
    #expect(
      exchange.tick(now: 660_000).contains(.consumer(Identifier(high: 0, low: 1), .lost(arrived: true))))
  }

  @Test func anotherProcessOfThePeerKnowsNothing() throws {
    var exchange = opened()
    _ = try exchange.submit(request(1))
    #expect(exchange.channelClosed(a, now: 1) == [.connect])
    let b = ChannelNumber(2)
    _ = exchange.channelOpened(b, ticket: ticket, now: 2)
    let outputs = exchange.receive(hello(process: Identifier(high: 5, low: 5).data), on: b, now: 2)
    #expect(outputs == [.consumer(Identifier(high: 0, low: 1), .lost(arrived: true))])
  }
}
