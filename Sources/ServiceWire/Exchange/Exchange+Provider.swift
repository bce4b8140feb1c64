import Foundation
package import SodiumPrimitives

extension Exchange {
  // MARK: Provider

  /// The request that arrived is right, and everything of it is here: it waits for its turn.
  package mutating func admit(_ id: Identifier) -> [ExchangeOutput] {
    guard var request = incoming[id], request.state == .arrived else { return [] }
    request.state = .queued
    incoming[id] = request
    guard let channel = request.channel else { return [] }
    return [.send(.with { $0.accepted.id = id.data }, on: channel)]
  }

  /// The request that arrived is wrong.
  package mutating func refuse(_ id: Identifier, _ failure: WireFailure) -> [ExchangeOutput] {
    guard let request = incoming[id], request.state == .arrived else { return [] }
    var outputs: [ExchangeOutput] = []
    if let channel = request.channel {
      outputs.append(
        .send(
          .with {
            $0.refused = .with {
              $0.id = id.data
              $0.failure = failure.sendable
            }
          }, on: channel))
    }
    forget(id, request, &outputs)
    return outputs
  }

  /// Its turn has come. False when it was withdrawn.
  package mutating func begin(_ id: Identifier) -> Bool {
    guard incoming[id]?.state == .queued else { return false }
    incoming[id]?.state = .handling
    return true
  }

  // MARK: The end

  /// What the request takes is the app's own from now on.
  mutating func releaseRequest(_ id: Identifier) {
    keptRequestByteCount -= incoming[id]?.requestByteCount ?? 0
    incoming[id]?.requestByteCount = 0
  }

  mutating func forget(_ id: Identifier, _ request: Incoming, _ outputs: inout [ExchangeOutput]) {
    releaseRequest(id)
    incoming[id] = nil
    keptReplyByteCount -= request.keptReplyByteCount
    if let channel = request.creditChannel {
      channels[channel]?.granted += 1
    } else {
      payCredit(&outputs)
    }
  }

  mutating func expire(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard let request = incoming[id] else { return }
    forget(id, request, &outputs)
    if !request.isReplyGivenUp { outputs.append(.provider(id, .replyExpired)) }
  }

  /// Nobody but the peer's process that sent a request can ask for its reply.
  mutating func expireReplies(toOthersThan process: Identifier, _ outputs: inout [ExchangeOutput]) {
    for (id, request) in incoming
    where request.channel == nil && request.state.isAnswered && request.peerProcess != process {
      expire(id, &outputs)
    }
  }

  // MARK: Credit

  /// Requests that the peer may have under way with what it was granted, over all channels.
  var promisedCount: Int { incoming.count + channels.values.reduce(0) { $0 + $1.granted } }

  /// Gives the channels what was left out of their first credit, as far as there is room by now.
  mutating func payCredit(_ outputs: inout [ExchangeOutput]) {
    for (number, channel) in channels where channel.isOpen && channel.owed > 0 {
      let more = min(channel.owed, limits.peerRequestCountMax - promisedCount)
      guard more > 0 else { continue }
      channels[number]?.owed -= more
      outputs += grant(more, on: number)
    }
  }

  /// Lets the peer send so many requests more.
  package mutating func grant(_ more: Int, on channel: ChannelNumber) -> [ExchangeOutput] {
    guard more > 0, channels[channel]?.isOpen == true else { return [] }
    channels[channel]?.granted += more
    return [.send(.with { $0.credit.more = UInt32(more) }, on: channel)]
  }

  // MARK: Receiving, as the provider

  mutating func take(
    _ request: WireRequest, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: request.id)
    guard incoming[id] == nil else { throw ProtocolViolation(fault: .unexpectedMessage) }
    guard let granted = channels[number]?.granted, granted > 0 else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "requests under way")
    }
    try request.check()
    guard request.attachments == 0 else { throw ProtocolViolation(fault: .unexpectedMessage) }
    let byteCount = Self.keptByteCount(of: request)
    guard byteCount <= keptRequestByteCountMax - keptRequestByteCount,
      // Else who acknowledges nothing could go on asking.
      keptReplyByteCount < keptReplyByteCountMax
    else {
      // It gives its credit back by itself.
      let refused = WireChannelMessage.with {
        $0.refused.id = id.data
        $0.refused.failure = .limitExceeded("request bytes of one peer")
      }
      return outputs.append(.send(refused, on: number))
    }
    channels[number]?.granted = granted - 1
    keptRequestByteCount += byteCount
    incoming[id] = Incoming(
      channel: number, creditChannel: number, peerProcess: channels[number]?.peerProcess,
      requestByteCount: byteCount)
    outputs.append(.provider(id, .arrived(request)))
  }

  /// What a request takes until it is answered, about: 4 KiB for itself and its handler, and what its params take.
  static func keptByteCount(of request: WireRequest) -> Int {
    (4 << 10) + (request.hasParams ? request.params.keptByteCount : 0)
  }

  mutating func takeReplyAccepted(_ id: Identifier, _ outputs: inout [ExchangeOutput])
    throws(ProtocolViolation)
  {
    guard let request = incoming[id] else { throw ProtocolViolation(fault: .unexpectedMessage) }
    guard request.state.isAnswered, !request.isAnswerWaiting else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    if !request.isReplyGivenUp { outputs.append(.provider(id, .replyAccepted)) }
    forget(id, request, &outputs)
  }

  mutating func takeCancel(
    _ id: Identifier, _ afterAccepted: Bool, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    var done = false
    if let request = incoming[id] {
      switch request.state {
      case .arrived, .queued:
        guard request.state == .queued || !afterAccepted else {
          throw ProtocolViolation(fault: .unexpectedMessage)
        }
        if afterAccepted {
          requestCancel(id, &outputs)
        } else {
          outputs.append(.provider(id, .withdrawn))
          done = true
        }
      case .handling: requestCancel(id, &outputs)
      case .replied, .ended: break
      }
    }
    outputs.append(
      .send(
        .with {
          $0.cancelled = .with {
            $0.id = id.data
            $0.done = done
          }
        }, on: number))
    if done, let request = incoming[id] { forget(id, request, &outputs) }
  }

  private mutating func requestCancel(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard incoming[id]?.isCancelRequested == false else { return }
    incoming[id]?.isCancelRequested = true
    outputs.append(.provider(id, .cancelRequested))
  }

  mutating func takeInquiry(
    _ message: WireInquiry, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    guard message.tickets.count <= ExchangeLimits.inquiryTicketCountMax,
      message.tickets.allSatisfy({ $0.count == Self.ticketByteCount }),
      !message.tickets.contains(channels[number]?.ticket ?? Data())
    else { throw ProtocolViolation(fault: .malformed) }
    // The peer has closed them. What it sent there and is still on its way must not come after the answer.
    for (other, channel) in channels where message.tickets.contains(channel.ticket) {
      outputs += fail(other, .noError, now: now)
    }
    var state = WireRequestState.unheard
    if let request = incoming[id] {
      // Whoever has a channel for it knows: an answer for each question would be a lever.
      if let channel = request.channel, channels[channel] != nil {
        throw ProtocolViolation(fault: .unexpectedMessage)
      }
      incoming[id]?.channel = number
      switch request.state {
      case .arrived: state = .arrived
      case .queued: state = .queued
      case .handling: state = .handling
      case .replied(var reply):
        state = .replied
        incoming[id]?.replySent = now
        if request.replyByteCount > channels[number]?.peerFrameByteCountMax ?? 0 {
          reply = refuse(id, reply, .frameLimit, &outputs)
          let kept = Self.keptByteCount(of: reply)
          keptReplyByteCount += kept - request.keptReplyByteCount
          incoming[id]?.keptReplyByteCount = kept
          incoming[id]?.replyByteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
          incoming[id]?.state = .replied(reply)
        }
      case .ended:
        state = .ended
        incoming[id]?.replySent = now
      }
    }
    outputs.append(
      .send(
        .with {
          $0.standing = .with {
            $0.id = id.data
            $0.state = state
          }
        }, on: number))
    if incoming[id]?.state.isAnswered == true { answer(id, &outputs) }
  }
}
