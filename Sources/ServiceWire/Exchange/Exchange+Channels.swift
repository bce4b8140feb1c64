package import Foundation

extension Exchange {
  /// Both sides have proved who they are; the ticket is that of the introduction.
  package mutating func channelOpened(_ number: ChannelNumber, ticket: Data, now: UInt64) -> [ExchangeOutput]
  {
    precondition(channels[number] == nil, "the number of a channel is used once")
    isConnecting = false
    guard channels.count < limits.channelCountMax else {
      return [.close(number, .limitExceeded, detail: "channels of a pair")]
    }
    channels[number] = Channel(ticket: ticket, opened: now, lastHeard: now, granted: limits.requestCountMax)
    return [
      .send(
        .with {
          $0.hello = .with {
            $0.version = Self.versionMax
            $0.ticket = ticket
            $0.appID = ownAppID
            $0.process = process.bytes
            $0.requests = UInt32(limits.requestCountMax)
            $0.frameByteCount = UInt32(limits.frameByteCountMax)
            $0.attachments = limits.attachmentCountMax
          }
        }, on: number)
    ]
  }

  /// There is no way to the peer now: what waits has ended, and so has what nobody can ask about.
  package mutating func channelRefused(_ failure: WireFailure) -> [ExchangeOutput] {
    isConnecting = false
    guard channels.isEmpty else { return [] }
    var outputs: [ExchangeOutput] = []
    for id in queue[queueBegin...] where outgoing[id]?.state == .queued {
      outgoing[id] = nil
      outputs.append(.consumer(id, .refused(failure)))
    }
    queue = []
    queueBegin = 0
    queuedCount = 0
    return outputs
  }

  /// The channel has ended, in good order or not.
  package mutating func channelClosed(_ number: ChannelNumber, now: UInt64) -> [ExchangeOutput] {
    guard channels.removeValue(forKey: number) != nil else { return [] }
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
    for (id, request) in incoming where request.channel == number {
      incoming[id]?.channel = nil
      incoming[id]?.brokenSince = now
      if request.creditChannel == number { incoming[id]?.creditChannel = nil }
    }
    var outputs: [ExchangeOutput] = []
    // Whether the requests arrived is asked over the next channel.
    let asks = outgoing.values.contains { if case .unknown = $0.state { true } else { false } }
    if channels.isEmpty, asks || queuedCount > 0, !isConnecting {
      isConnecting = true
      outputs.append(.connect)
    }
    if let newest, channels[newest] != nil {
      inquire(over: newest, &outputs)
      flush(&outputs)
    }
    return outputs
  }

  /// Called every second or so.
  package mutating func tick(now: UInt64) -> [ExchangeOutput] {
    var outputs: [ExchangeOutput] = []
    for (number, channel) in channels {
      if !channel.isOpen {
        if now >= channel.opened + limits.beginningTime { outputs += fail(number, .timedOut, now: now) }
        continue
      }
      guard now >= channel.lastHeard + limits.idleTime, !isIdle else { continue }
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
    for (id, request) in incoming where request.channel == nil {
      // Longer than the consumer asks, so that what it did not hear of is not taken for what never came.
      guard now >= request.brokenSince + limits.replyTime + limits.idleTime else { continue }
      switch request.state {
      case .replied, .ended:
        forget(id, request)
        outputs.append(.provider(id, .replyExpired))
      case .arrived, .queued, .handling: break
      }
    }
    return outputs
  }

  mutating func fail(
    _ number: ChannelNumber, _ fault: ProtocolFault, detail: String = "", now: UInt64
  ) -> [ExchangeOutput] {
    [.close(number, fault, detail: detail)] + channelClosed(number, now: now)
  }
}
