import Foundation

extension Exchange {
  // MARK: Provider

  /// The request that arrived is right, and everything of it is here: it waits for its turn.
  package mutating func admit(_ id: WireID) -> [ExchangeOutput] {
    guard var request = incoming[id], request.state == .arrived else { return [] }
    request.state = .queued
    incoming[id] = request
    guard let channel = request.channel else { return [] }
    return [.send(.with { $0.accepted.id = id.bytes }, on: channel)]
  }

  /// The request that arrived is wrong.
  package mutating func refuse(_ id: WireID, _ failure: WireFailure) -> [ExchangeOutput] {
    guard let request = incoming[id], request.state == .arrived else { return [] }
    forget(id, request)
    guard let channel = request.channel else { return [] }
    return [
      .send(
        .with {
          $0.refused = .with {
            $0.id = id.bytes
            $0.failure = failure
          }
        }, on: channel)
    ]
  }

  /// Its turn has come. False when it was withdrawn.
  package mutating func begin(_ id: WireID) -> Bool {
    guard incoming[id]?.state == .queued else { return false }
    incoming[id]?.state = .handling
    return true
  }

  /// The app's reply. Throws `unexpectedMessage` when the request is not being handled, or was replied to.
  package mutating func reply(_ reply: WireReply, now: UInt64) throws(ProtocolFault) -> [ExchangeOutput] {
    guard let id = WireID(reply.id), var request = incoming[id], request.state == .handling else {
      throw .unexpectedMessage
    }
    request.state = .replied(reply)
    request.brokenSince = now
    incoming[id] = request
    guard let channel = request.channel else { return [] }
    return [.send(.with { $0.reply = reply }, on: channel)]
  }

  /// The app will not reply. Throws as ``reply(_:now:)`` does.
  package mutating func endWithoutReply(_ id: WireID, now: UInt64) throws(ProtocolFault) -> [ExchangeOutput] {
    guard var request = incoming[id], request.state == .handling else { throw .unexpectedMessage }
    request.state = .ended
    request.brokenSince = now
    incoming[id] = request
    guard let channel = request.channel else { return [] }
    return [.send(.with { $0.noReply.id = id.bytes }, on: channel)]
  }

  mutating func forget(_ id: WireID, _ request: Incoming) {
    incoming[id] = nil
    if let channel = request.creditChannel { channels[channel]?.granted += 1 }
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
  ) throws(Fault) {
    let id = try Self.id(request.id)
    guard incoming[id] == nil else { throw Fault(fault: .unexpectedMessage) }
    guard let granted = channels[number]?.granted, granted > 0 else {
      throw Fault(fault: .limitExceeded, detail: "requests under way")
    }
    guard case .UNRECOGNIZED = request.foreground else {
      if limits.attachmentCountMax > 0, request.attachments > limits.attachmentCountMax {
        throw Fault(fault: .limitExceeded, detail: "attachments of a message")
      }
      channels[number]?.granted = granted - 1
      incoming[id] = Incoming(channel: number, creditChannel: number)
      outputs.append(.provider(id, .arrived(request)))
      return
    }
    throw Fault(fault: .malformed)
  }

  mutating func takeReplyAccepted(_ id: WireID, _ outputs: inout [ExchangeOutput]) throws(Fault) {
    guard let request = incoming[id] else { throw Fault(fault: .unexpectedMessage) }
    switch request.state {
    case .replied, .ended:
      forget(id, request)
      outputs.append(.provider(id, .replyAccepted))
    case .arrived, .queued, .handling: throw Fault(fault: .unexpectedMessage)
    }
  }

  mutating func takeCancel(
    _ id: WireID, _ afterAccepted: Bool, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(Fault) {
    var done = false
    if let request = incoming[id] {
      switch request.state {
      case .arrived, .queued:
        guard request.state == .queued || !afterAccepted else { throw Fault(fault: .unexpectedMessage) }
        if afterAccepted {
          outputs.append(.provider(id, .cancelRequested))
        } else {
          forget(id, request)
          outputs.append(.provider(id, .withdrawn))
          done = true
        }
      case .handling: outputs.append(.provider(id, .cancelRequested))
      case .replied, .ended: break
      }
    }
    outputs.append(
      .send(
        .with {
          $0.cancelled = .with {
            $0.id = id.bytes
            $0.done = done
          }
        }, on: number))
  }

  mutating func takeInquiry(
    _ message: WireInquiry, _ number: ChannelNumber, _ now: UInt64, _ outputs: inout [ExchangeOutput]
  ) throws(Fault) {
    let id = try Self.id(message.id)
    guard !message.tickets.contains(channels[number]?.ticket ?? Data()) else {
      throw Fault(fault: .malformed)
    }
    // The peer has closed them. What it sent there and is still on its way must not come after the answer.
    for (other, channel) in channels where message.tickets.contains(channel.ticket) {
      outputs += fail(other, .noError, now: now)
    }
    var state = WireRequestState.unheard
    var again: WireChannelMessage?
    if let request = incoming[id] {
      // Whoever has a channel for it knows: an answer for each question would be a lever.
      if let channel = request.channel, channels[channel] != nil { throw Fault(fault: .unexpectedMessage) }
      incoming[id]?.channel = number
      switch request.state {
      case .arrived: state = .arrived
      case .queued: state = .queued
      case .handling: state = .handling
      case .replied(let reply):
        state = .replied
        again = .with { $0.reply = reply }
      case .ended:
        state = .ended
        again = .with { $0.noReply.id = id.bytes }
      }
    }
    outputs.append(
      .send(
        .with {
          $0.standing = .with {
            $0.id = id.bytes
            $0.state = state
          }
        }, on: number))
    if let again { outputs.append(.send(again, on: number)) }
  }
}
