package import Foundation

extension Exchange {
  /// Both sides have proved who they are; the ticket is that of the introduction.
  package mutating func channelOpened(_ number: ChannelNumber, ticket: Data, now: UInt64) -> [ExchangeOutput]
  {
    precondition(channels[number] == nil, "the number of a channel is used once")
    note(now)
    isConnecting = false
    guard channels.count < limits.channelCountMax else {
      return [.close(number, .limitExceeded, detail: "channels of a pair")]
    }
    retry.time = nil
    retry.wasRefused = false
    let credit = max(0, min(limits.requestCountMax, limits.peerRequestCountMax - promisedCount))
    channels[number] = Channel(
      ticket: ticket, opened: now, lastHeard: now, granted: credit, owed: limits.requestCountMax - credit)
    return [
      .send(
        .with {
          $0.hello = .with {
            $0.version = Self.versionMax
            $0.ticket = ticket
            $0.appID = ownAppID
            $0.process = process.data
            $0.requests = UInt32(credit)
            $0.frameByteCount = UInt32(limits.frameByteCountMax)
            $0.attachments = limits.attachmentCountMax
            $0.slots = UInt32(limits.slotCountMax)
          }
        }, on: number)
    ]
  }

  /// There is no way to the peer now: what waits in the queue has ended. What became of requests that were sent is asked after a pause.
  package mutating func channelRefused(_ failure: WireFailure, now: UInt64) -> [ExchangeOutput] {
    note(now)
    isConnecting = false
    guard channels.isEmpty else { return [] }
    retry.wasRefused = true
    let outputs = endQueue(.refused(failure))
    if hasUnknown { pause(now) }
    return outputs
  }

  /// The channel has ended, in good order or not.
  package mutating func channelClosed(_ number: ChannelNumber, now: UInt64) -> [ExchangeOutput] {
    note(now)
    guard let closed = channels.removeValue(forKey: number) else { return [] }
    if newest == number {
      newest = channels.filter { $0.value.isOpen }.max { $0.value.opened < $1.value.opened }?.key
    }
    for (id, request) in outgoing where request.answerChannel == number {
      outgoing[id]?.answerChannel = nil
      switch request.state {
      case .queued, .unknown: break
      case .sent: outgoing[id]?.state = .unknown(since: now, wasAccepted: false, cancels: false)
      case .accepted: outgoing[id]?.state = .unknown(since: now, wasAccepted: true, cancels: false)
      // An acceptance that waits for the answer to a cancel was not told.
      case .cancelling: outgoing[id]?.state = .unknown(since: now, wasAccepted: false, cancels: true)
      }
    }
    for (id, request) in incoming {
      if request.creditChannel == number { incoming[id]?.creditChannel = nil }
      guard request.channel == number else { continue }
      incoming[id]?.channel = nil
      incoming[id]?.isAnswerWaiting = false
      incoming[id]?.brokenSince = now
    }
    var outputs: [ExchangeOutput] = []
    reconnect(after: closed, now, &outputs)
    if let newest, channels[newest] != nil {
      inquire(over: newest, &outputs)
      flush(&outputs)
    }
    payCredit(&outputs)
    return outputs
  }

  /// The owner's queue of bytes for the channel is full, or has room again. While it is full no request is sent there, and no answer that
  /// the app gives; a peer that goes on asking without reading is closed as too slow.
  package mutating func channelIsFull(_ number: ChannelNumber, _ isFull: Bool) -> [ExchangeOutput] {
    guard channels[number] != nil else { return [] }
    channels[number]?.isFull = isFull
    channels[number]?.heardWhileFullCount = 0
    channels[number]?.sentByteCount = 0
    var outputs: [ExchangeOutput] = []
    sendAnswers(on: number, &outputs)
    flush(&outputs)
    return outputs
  }

  // MARK: Asking for a channel

  private var hasUnknown: Bool {
    outgoing.values.contains { if case .unknown = $0.state { true } else { false } }
  }

  /// The next attempt is after the pause; the pause after that is twice as long.
  private mutating func pause(_ now: UInt64) {
    retry.pause = min(max(retry.pause, limits.retryPauseMin), limits.retryPauseMax)
    retry.time = now + retry.pause
    retry.pause = min(2 * retry.pause, limits.retryPauseMax)
  }

  private mutating func reconnect(after closed: Channel, _ now: UInt64, _ outputs: inout [ExchangeOutput]) {
    retry.failedBeginningCount = closed.isOpen ? 0 : retry.failedBeginningCount + 1
    if closed.isOpen, now >= closed.opened + limits.retryPauseMax { retry.pause = 0 }
    guard channels.isEmpty, !isConnecting else { return }
    if retry.failedBeginningCount >= limits.failedBeginningCountMax {
      retry.failedBeginningCount = 0
      outputs += endQueue(.lost(arrived: false))
    }
    // The owner's next request asks for a channel by itself.
    guard queuedCount > 0 || hasUnknown else { return }
    guard retry.pause == 0 else { return pause(now) }
    retry.pause = limits.retryPauseMin
    isConnecting = true
    outputs.append(.connect)
  }

  private mutating func endQueue(_ event: ConsumerEvent) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    for id in queue[queueBegin...] where outgoing[id]?.state == .queued {
      outgoing[id] = nil
      outputs.append(.consumer(id, event))
    }
    queue = []
    queueBegin = 0
    queuedCount = 0
    return outputs
  }

  // MARK: Time

  mutating func note(_ now: UInt64) { lastTime = max(lastTime, now) }

  /// Called every second or so, and at ``retryTime``. `isDelivering`: deliveries are under way, so the peer has to live as if requests were.
  package mutating func tick(now: UInt64, isDelivering: Bool = false) -> [ExchangeOutput] {
    note(now)
    var outputs: [ExchangeOutput] = []
    for (number, channel) in channels {
      if !channel.isOpen {
        if now >= channel.opened + limits.beginningTime { outputs += fail(number, .timedOut, now: now) }
        continue
      }
      guard now >= channel.lastHeard + limits.idleTime, isDelivering || !isIdle else { continue }
      if let ping = channel.ping {
        if now >= ping + limits.idleTime { outputs += fail(number, .timedOut, now: now) }
      } else {
        channels[number]?.ping = now
        outputs.append(.send(.with { $0.ping.number = now }, on: number))
      }
    }
    for (id, request) in outgoing {
      guard case .unknown(let since, _, _) = request.state, now >= since + limits.replyTime else { continue }
      outgoing[id] = nil
      outputs.append(.consumer(id, .lost(arrived: true)))
    }
    expireReplies(now, &outputs)
    if let time = retry.time, now >= time, !isConnecting {
      retry.time = nil
      if channels.isEmpty, queuedCount > 0 || hasUnknown {
        isConnecting = true
        outputs.append(.connect)
      }
    }
    return outputs
  }

  private mutating func expireReplies(_ now: UInt64, _ outputs: inout [ExchangeOutput]) {
    for (id, request) in incoming where request.state.isAnswered {
      guard !request.isAnswerWaiting else {
        incoming[id]?.replySent = now
        continue
      }
      if let channel = request.channel {
        // It answers, or somebody would have noticed by now: but not this.
        guard now >= request.replySent + limits.replyTime else { continue }
        if channels[channel] != nil { outputs += fail(channel, .timedOut, detail: "reply time", now: now) }
      } else {
        // Longer than the consumer asks, so that what it did not hear of is not taken for what never came.
        guard now >= request.brokenSince + limits.replyTime + limits.idleTime else { continue }
      }
      expire(id, &outputs)
    }
  }

  mutating func fail(
    _ number: ChannelNumber, _ fault: ProtocolFault, detail: String = "", now: UInt64
  ) -> [ExchangeOutput] {
    [.close(number, fault, detail: detail)] + channelClosed(number, now: now)
  }
}
