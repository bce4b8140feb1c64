import Foundation
import SodiumPrimitives
import SwiftProtobuf
import TestSupport

@testable import ServiceWire

/// Two exchanges back to back, with channels that deliver in order, late, and sometimes break: what happens next is drawn from a seed.
/// Notes everything that the apps at both ends would see, and says what of it breaks the protocol's promises.
final class ExchangeWorld {
  enum Side: Int, CaseIterable, Sendable {
    case a, b
    var other: Side { self == .a ? .b : .a }
  }

  struct Pipe {
    var messages: [Side: [WireChannelMessage]] = [.a: [], .b: []]
    /// Whether the side has seen the end.
    var ended: [Side: Bool] = [.a: false, .b: false]
  }

  struct Life {
    var consumer: [ConsumerEvent] = []
    var handlerBegins = 0
    var replies = 0
    var isSubmitted = false
  }

  var random: SplitMix64
  var now: UInt64 = 1_000
  var exchanges: [Side: Exchange] = [:]
  var pipes: [ChannelNumber: Pipe] = [:]
  var wantsChannel: Set<Side> = []
  var awaitsRoom: [Side: Set<ChannelNumber>] = [.a: [], .b: []]
  var lives: [Side: [Identifier: Life]] = [.a: [:], .b: [:]]
  var arrived: [Side: [Identifier]] = [.a: [], .b: []]
  var queued: [Side: [Identifier]] = [.a: [], .b: []]
  var handling: [Side: [Identifier]] = [.a: [], .b: []]
  var problems: [String] = []
  var trace: [String] = []
  private var nextChannel: UInt64 = 1
  private var nextRequest: UInt64 = 1
  var breaks = true

  init(seed: UInt64, limits: ExchangeLimits) {
    random = SplitMix64(seed: seed)
    for side in Side.allCases {
      exchanges[side] = Exchange(
        ownAppID: "com.example.\(side)", peerAppID: "com.example.\(side.other)",
        process: Identifier(high: 7, low: UInt64(side.rawValue)), limits: limits)
    }
  }

  private func event(_ end: ConsumerEvent) -> Bool {
    switch end {
    case .refused, .replied, .noReply, .replyIsDelivered, .cancelled, .lost: true
    case .waitsForUnlock, .accepted, .notCancelled: false
    }
  }

  func note(_ problem: String) { problems.append("at \(trace.count): \(problem)") }

  func perform(_ outputs: [ExchangeOutput], _ side: Side) {
    for output in outputs {
      switch output {
      case .connect: wantsChannel.insert(side)
      case .awaitRoom(let channel): awaitsRoom[side]?.insert(channel)
      case .send(let message, let channel):
        if pipes[channel]?.ended[side.other] == false {
          pipes[channel]?.messages[side.other]?.append(message)
        }
      case .close(let channel, let fault, let detail):
        if fault != .noError, fault != .timedOut { note("\(side) closes with \(fault) \(detail)") }
        pipes[channel]?.ended[side] = true
      case .consumer(let id, let event): see(id, event, side)
      case .provider(let id, let event): see(id, event, side)
      }
    }
  }

  func see(_ id: Identifier, _ new: ConsumerEvent, _ side: Side) {
    trace.append("\(side) \(id.description.suffix(3)) \(new)".prefix(60).description)
    guard var life = lives[side]?[id] else { return note("an event for a request that nobody sent") }
    if life.consumer.contains(where: event) { note("\(new) after the end") }
    if new == .accepted, life.consumer.contains(.accepted) { note("accepted twice") }
    let isReply = if case .replied = new { true } else { new == .noReply }
    if isReply, !life.consumer.contains(.accepted) { note("a reply before it was accepted") }
    if new == .cancelled, life.consumer.contains(.accepted) { note("cancelled after it was accepted") }
    if new == .cancelled, life.handlerBegins > 0 { note("cancelled although the handler had it") }
    if new == .lost(arrived: false), life.handlerBegins > 0 {
      note("said never to have arrived although the handler had it")
    }
    life.consumer.append(new)
    lives[side]?[id] = life
  }

  func see(_ id: Identifier, _ event: ProviderEvent, _ side: Side) {
    trace.append("\(side) provides \(id.description.suffix(3)) \(event)".prefix(60).description)
    switch event {
    case .arrived: arrived[side]?.append(id)
    case .withdrawn:
      arrived[side]?.removeAll { $0 == id }
      queued[side]?.removeAll { $0 == id }
    case .cancelRequested, .replyAccepted, .replyExpired, .replyRefused: break
    }
  }

  func with(_ side: Side, _ body: (inout Exchange) throws -> [ExchangeOutput]) {
    do {
      let outputs = try body(&exchanges[side]!)
      perform(outputs, side)
      exchanges[side]!.brokenRules.forEach(note)
    } catch {
      note("\(side) threw \(error)")
    }
  }

  func open() {
    let number = ChannelNumber(nextChannel)
    nextChannel += 1
    pipes[number] = Pipe()
    let ticket = Data(repeating: UInt8(truncatingIfNeeded: number.number), count: Exchange.ticketByteCount)
    wantsChannel = []
    for side in Side.allCases { with(side) { $0.channelOpened(number, ticket: ticket, now: now) } }
  }

  private func forgetEnded() { pipes = pipes.filter { $0.value.ended.values.contains(false) } }

  /// Delivers a message, or lets a side see the end.
  func deliver() {
    guard let number = pipes.keys.sorted(by: { $0.number < $1.number }).randomElement(using: &random),
      let pipe = pipes[number]
    else { return }
    let side = Bool.random(using: &random) ? Side.a : .b
    if pipe.ended[side] == true { return }
    if let message = pipe.messages[side]?.first {
      pipes[number]?.messages[side]?.removeFirst()
      trace.append(
        "\(side) receives on \(number.number): \(message.textFormatString().split(separator: "\n").joined(separator: " "))"
      )
      with(side) { $0.receive(message, on: number, now: now) }
    } else if pipe.ended[side.other] == true {
      pipes[number]?.ended[side] = true
      with(side) { $0.channelClosed(number, now: now) }
    }
  }

  func breakChannel() {
    guard let number = pipes.keys.sorted(by: { $0.number < $1.number }).randomElement(using: &random) else {
      return
    }
    trace.append("break \(number.number)")
    // What is under way in either direction is gone from some point on.
    for side in Side.allCases {
      let messages = pipes[number]?.messages[side] ?? []
      let keep = Int.random(in: 0...messages.count, using: &random)
      pipes[number]?.messages[side] = Array(messages.prefix(keep))
    }
    let first = Bool.random(using: &random) ? Side.a : .b
    guard pipes[number]?.ended[first] == false else { return }
    pipes[number]?.ended[first] = true
    with(first) { $0.channelClosed(number, now: now) }
  }

  /// There is room where one side waits for it.
  func makeRoom(_ side: Side) {
    guard let number = awaitsRoom[side]?.min(by: { $0.number < $1.number }) else { return }
    awaitsRoom[side]?.remove(number)
    with(side) { $0.channelIsFull(number, false) }
  }

  func submit(_ side: Side) {
    let id = Identifier(high: UInt64(side.rawValue), low: nextRequest)
    nextRequest += 1
    lives[side]?[id] = Life(isSubmitted: true)
    with(side) {
      try $0.submit(
        .with {
          $0.id = id.data
          $0.serviceID = "com.example.service"
          $0.version = "1.0"
          $0.method = "m"
        })
    }
  }

  func step() {
    forgetEnded()
    let side = Bool.random(using: &random) ? Side.a : .b
    now += UInt64.random(in: 0...3, using: &random)
    switch Int.random(in: 0..<100, using: &random) {
    case 0..<12: submit(side)
    case 12..<18:
      if let id = lives[side]?.keys.sorted().randomElement(using: &random) { with(side) { $0.cancel(id) } }
    case 18..<30:
      guard let id = arrived[side]?.first else { return }
      arrived[side]?.removeFirst()
      if Int.random(in: 0..<5, using: &random) == 0 {
        with(side) { $0.refuse(id, .with { $0.error = 4 }) }
      } else {
        queued[side]?.append(id)
        with(side) { $0.admit(id) }
      }
    case 30..<42:
      guard let id = queued[side]?.first else { return }
      queued[side]?.removeFirst()
      if exchanges[side]?.begin(id) == true {
        handling[side]?.append(id)
        lives[side.other]?[id]?.handlerBegins += 1
      }
    case 42..<54:
      guard let id = handling[side]?.randomElement(using: &random) else { return }
      handling[side]?.removeAll { $0 == id }
      lives[side.other]?[id]?.replies += 1
      if Bool.random(using: &random) {
        with(side) { try $0.endWithoutReply(id, now: now) }
      } else {
        with(side) { try $0.reply(.with { $0.id = id.data }, now: now) }
      }
    case 54..<56: if breaks { breakChannel() }
    case 56..<60: if !wantsChannel.isEmpty { open() } else if breaks, pipes.count < 2 { open() }
    case 60..<62: with(side) { $0.tick(now: now) }
    case 62..<64:
      if breaks, let side = wantsChannel.sorted(by: { $0.rawValue < $1.rawValue }).first {
        wantsChannel.remove(side)
        with(side) { $0.channelRefused(.with { $0.error = 3 }, now: now) }
      }
    case 64..<67:
      guard let number = pipes.keys.sorted(by: { $0.number < $1.number }).randomElement(using: &random) else {
        return
      }
      let isFull = Bool.random(using: &random)
      with(side) { $0.channelIsFull(number, isFull) }
    case 67..<73: makeRoom(side)
    default: deliver()
    }
  }

  /// Lets everything come to its end, without breaks.
  func settle() {
    breaks = false
    for side in Side.allCases { for number in pipes.keys { with(side) { $0.channelIsFull(number, false) } } }
    for _ in 0..<20_000 {
      forgetEnded()
      // Nothing is on its way: a pause has to go by, or replies that were kept for nobody.
      if wantsChannel.isEmpty, pipes.values.allSatisfy({ $0.messages.values.allSatisfy(\.isEmpty) }) {
        now += 100
        for side in Side.allCases { with(side) { $0.tick(now: now) } }
      }
      if !wantsChannel.isEmpty, pipes.isEmpty { open() }
      let side = Bool.random(using: &random) ? Side.a : .b
      makeRoom(side)
      if let id = arrived[side]?.first {
        arrived[side]?.removeFirst()
        queued[side]?.append(id)
        with(side) { $0.admit(id) }
      } else if let id = queued[side]?.first {
        queued[side]?.removeFirst()
        if exchanges[side]?.begin(id) == true {
          lives[side.other]?[id]?.handlerBegins += 1
          handling[side]?.append(id)
        }
      } else if let id = handling[side]?.first {
        handling[side]?.removeFirst()
        with(side) { try $0.reply(.with { $0.id = id.data }, now: now) }
      }
      deliver()
      if exchanges.values.allSatisfy({ $0.outgoingCount == 0 }),
        pipes.values.allSatisfy({ $0.messages.values.allSatisfy(\.isEmpty) })
      {
        break
      }
    }
    // What the provider kept for a consumer that has forgotten it goes by time.
    now += 10_000_000
    for side in Side.allCases { with(side) { $0.tick(now: now) } }
    for (side, requests) in lives {
      for (id, life) in requests {
        let ends = life.consumer.count { event($0) }
        if ends != 1 { note("\(side) \(id.description.suffix(3)) ended \(ends) times: \(life.consumer)") }
        if life.handlerBegins > 1 { note("\(id) was handled \(life.handlerBegins) times") }
        if life.consumer.last == .cancelled, life.handlerBegins > 0 {
          note("\(id) was cancelled and handled")
        }
        if life.consumer.last == .lost(arrived: false), life.handlerBegins > 0 {
          note("\(id) was called unheard, and handled")
        }
      }
    }
  }
}

extension Exchange {
  /// What must hold after every step and does not.
  var brokenRules: [String] {
    var broken: [String] = []
    let (requests, kept) = (sent.requests, received.requests)
    for number in channels.numbers {
      guard let channel = channels[number], let end = received.ends[number] else {
        broken.append("a channel without the provider's end")
        continue
      }
      let under = kept.values.count { $0.creditChannel == number }
      if end.granted + end.owed + under != limits.requestCountMax {
        broken.append("\(end.granted) granted, \(end.owed) owed and \(under) used of a channel")
      }
      if channel.isOpen, end.owed > 0, received.promisedCount < limits.peerRequestCountMax {
        broken.append("a channel is owed \(end.owed) although there is room")
      }
      if channel.isOpen != (sent.ends[number] != nil) {
        broken.append("the consumer's end of a channel is open or not, unlike the channel")
      }
      let unaccepted = requests.filter {
        $0.value.answerChannel == number
          && ($0.value.state == .sent || $0.value.state == .cancelling(accepted: false))
      }
      let noted = sent.ends[number]?.unaccepted ?? []
      if noted != Set(unaccepted.keys) {
        broken.append("\(noted.count) not accepted on a channel, not \(unaccepted.count)")
      }
      let waiting = kept.values.count { $0.channel == number && $0.isAnswerWaiting }
      if waiting > 0, !channel.isFull { broken.append("\(waiting) answers wait although there is room") }
      let settledCount = sent.ends[number]?.settledCancels.count ?? 0
      if settledCount > limits.unansweredCancelCountMax + limits.requestCountMax {
        broken.append("\(settledCount) cancels without an answer")
      }
    }
    if received.ends.count != channels.count || sent.ends.count != channels.openCount {
      broken.append("ends of channels that have ended")
    }
    if received.promisedCount > max(limits.peerRequestCountMax, limits.requestCountMax) {
      broken.append("\(received.promisedCount) requests of the peer")
    }
    let replyByteCount = kept.values.reduce(0) { $0 + $1.keptReplyByteCount }
    if replyByteCount != keptReplyByteCount {
      broken.append("\(replyByteCount) bytes of replies, counted \(keptReplyByteCount)")
    }
    let requestByteCount = kept.values.reduce(0) { $0 + $1.requestByteCount }
    if requestByteCount != keptRequestByteCount {
      broken.append("\(requestByteCount) bytes of requests, counted \(keptRequestByteCount)")
    }
    if keptRequestByteCount > limits.requestByteCountMax {
      broken.append("\(keptRequestByteCount) bytes of requests")
    }
    if sent.queue.count - sent.queueBegin > 2 * sent.queuedCount + 64 {
      broken.append("\(sent.queue.count) in the queue")
    }
    if requests.values.count(where: { $0.state == .queued }) != sent.queuedCount {
      broken.append("\(sent.queuedCount) counted as queued")
    }
    return broken
  }
}
