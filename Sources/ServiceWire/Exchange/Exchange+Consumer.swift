package import SodiumPrimitives

extension Exchange {
  // MARK: Consumer

  /// Takes a request that is to be sent. Throws `limitExceeded` when too many wait; `malformed` when the id is no id, or in
  /// use, or a name in it is too long; `unexpectedMessage` when it has files, which go as a delivery.
  package mutating func submit(_ request: WireRequest) throws(ProtocolFault) -> [ExchangeOutput] {
    guard let id = Identifier(exactly: request.id), outgoing[id] == nil else { throw .malformed }
    guard request.attachments == 0 else { throw .unexpectedMessage }
    guard queuedCount < limits.queuedRequestCountMax else { throw .limitExceeded }
    guard request.hasNamesOfRightLength else { throw .malformed }
    if retry.wasRefused { retry.time = nil }
    outgoing[id] = Outgoing(state: .queued, message: request)
    queue.append(id)
    queuedCount += 1
    var outputs: [ExchangeOutput] = []
    flush(&outputs)
    return outputs
  }

  /// The app does not want the request any more. What comes of it is an event; nothing for a request that has ended.
  package mutating func cancel(_ id: Identifier) -> [ExchangeOutput] {
    guard var request = outgoing[id] else { return [] }
    var outputs: [ExchangeOutput] = []
    switch request.state {
    case .queued:
      outgoing[id] = nil
      queuedCount -= 1
      compactQueue()
      return [.consumer(id, .cancelled)]
    case .sent:
      request.state = .cancelling(accepted: false)
      sendCancel(id, request, afterAccepted: false, &outputs)
    case .accepted:
      request.isCancelledTooLate = true
      sendCancelAfterAccepted(id, request, &outputs)
      outputs.append(.consumer(id, .notCancelled))
    case .cancelling: return []
    case .unknown(let since, let wasAccepted, _):
      request.state = .unknown(since: since, wasAccepted: wasAccepted, cancels: true)
    }
    outgoing[id] = request
    return outputs
  }

  func sendCancel(
    _ id: Identifier, _ request: Outgoing, afterAccepted: Bool, _ outputs: inout [ExchangeOutput]
  ) {
    guard let channel = request.answerChannel else { return }
    outputs.append(
      .send(
        .with {
          $0.cancel = .with {
            $0.id = id.data
            $0.afterAccepted = afterAccepted
          }
        }, on: channel))
  }

  /// Advice only: so it is left out while too many have no answer.
  mutating func sendCancelAfterAccepted(
    _ id: Identifier, _ request: Outgoing, _ outputs: inout [ExchangeOutput]
  ) {
    guard let number = request.answerChannel, let channel = channels[number],
      channel.settledCancels.count < limits.unansweredCancelCountMax, !channel.settledCancels.contains(id)
    else { return }
    channels[number]?.settledCancels.insert(id)
    sendCancel(id, request, afterAccepted: true, &outputs)
  }

  /// Those that were cancelled while they waited take no more room than those that wait.
  private mutating func compactQueue() {
    guard queue.count - queueBegin > 2 * queuedCount + 64 else { return }
    queue = queue[queueBegin...].filter { outgoing[$0]?.state == .queued }
    queueBegin = 0
  }

  /// Sends what waits, as far as there is credit and the peer reads.
  mutating func flush(_ outputs: inout [ExchangeOutput]) {
    guard queuedCount > 0 else { return }
    guard let number = channelForRequests(), var channel = channels[number] else {
      if !isConnecting, channels.isEmpty, retry.time == nil {
        isConnecting = true
        outputs.append(.connect)
      }
      return
    }
    guard !channel.isFull, channel.settledCancels.count < limits.unansweredCancelCountMax else { return }
    while channel.credit > 0, !channel.isFull, queueBegin < queue.count {
      let id = queue[queueBegin]
      queueBegin += 1
      guard var request = outgoing[id], request.state == .queued, let message = request.message else {
        continue
      }
      queuedCount -= 1
      let byteCount = WireChannelMessage.with { $0.request = message }.encodedByteCount
      if byteCount > channel.peerFrameByteCountMax {
        outgoing[id] = nil
        outputs.append(.consumer(id, .refused(.frameLimit)))
        continue
      }
      channel.credit -= 1
      request.state = .sent
      request.sentTime = lastTime
      request.channel = number
      request.answerChannel = number
      request.tickets = [channel.ticket]
      request.peerProcess = channel.peerProcess
      outgoing[id] = request
      channel.unaccepted.insert(id)
      outputs.append(.send(.with { $0.request = message }, on: number))
      if channel.didSend(byteCount, limits) { outputs.append(.awaitRoom(on: number)) }
    }
    channels[number] = channel
    if queueBegin > queue.count - queueBegin {
      queue.removeFirst(queueBegin)
      queueBegin = 0
    }
  }

  /// The newest channel; but the one before, as long as what was sent there may arrive after what is sent on another.
  private mutating func channelForRequests() -> ChannelNumber? {
    if let sending, channels[sending]?.unaccepted.isEmpty == false { return sending }
    sending = newest
    return newest
  }

  mutating func giveCreditBack(_ channel: ChannelNumber?) {
    if let channel { channels[channel]?.credit += 1 }
  }

  // MARK: Receiving, as the consumer

  func request(_ id: Identifier, _ number: ChannelNumber) throws(ProtocolViolation) -> Outgoing {
    guard let request = outgoing[id], request.answerChannel == number else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    return request
  }

  mutating func takeAccepted(
    _ id: Identifier, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    switch request.state {
    case .sent:
      outgoing[id]?.state = .accepted
      outgoing[id]?.message = nil
      outputs.append(.consumer(id, .accepted))
    case .cancelling(accepted: false): outgoing[id]?.state = .cancelling(accepted: true)
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    channels[number]?.unaccepted.remove(id)
  }

  mutating func takeRefused(
    _ id: Identifier, _ failure: WireFailure, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    try failure.check()
    switch request.state {
    case .sent: break
    case .cancelling(accepted: false): channels[number]?.settledCancels.insert(id)
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    end(id, request, .refused(failure), &outputs)
  }

  mutating func takeReply(
    _ reply: WireReply, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: reply.id)
    guard reply.attachments == 0 else { throw ProtocolViolation(fault: .unexpectedMessage) }
    try reply.check()
    if case .failure(let failure)? = reply.result {
      try takeEnd(id, .refused(failure), number, &outputs)
    } else {
      try takeEnd(id, .replied(reply), number, &outputs)
    }
  }

  mutating func takeEnd(
    _ id: Identifier, _ event: ConsumerEvent, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    switch request.state {
    case .accepted: break
    case .cancelling(accepted: true):
      channels[number]?.settledCancels.insert(id)
      outputs.append(.consumer(id, .notCancelled))
      outputs.append(.consumer(id, .accepted))
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    end(id, request, event, &outputs)
    outputs.append(.send(.with { $0.replyAccepted.id = id.data }, on: number))
  }

  mutating func takeCancelled(
    _ id: Identifier, _ done: Bool, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    if channels[number]?.settledCancels.remove(id) != nil {
      guard !done else { throw ProtocolViolation(fault: .unexpectedMessage) }
      return
    }
    let request = try request(id, number)
    switch (request.state, done) {
    case (.cancelling, true): end(id, request, .cancelled, &outputs)
    case (.cancelling(accepted: true), false):
      outgoing[id]?.state = .accepted
      outputs.append(.consumer(id, .notCancelled))
      outputs.append(.consumer(id, .accepted))
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  mutating func takeStanding(
    _ id: Identifier, _ state: WireRequestState, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    guard case .unknown(_, let wasAccepted, let cancels) = request.state else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    switch state {
    // Withdrawn, or never there: the handler did not see it.
    case .unheard where cancels && !wasAccepted: end(id, request, .cancelled, &outputs)
    case .unheard where !wasAccepted && mayBeSentAgain(request): queueAgain(id, request)
    case .unheard: end(id, request, .lost(arrived: wasAccepted), &outputs)
    case .arrived where wasAccepted: throw ProtocolViolation(fault: .unexpectedMessage)
    case .arrived:
      outgoing[id]?.state = cancels ? .cancelling(accepted: false) : .sent
      channels[number]?.unaccepted.insert(id)
      if cancels { sendCancel(id, request, afterAccepted: false, &outputs) }
    case .queued, .handling, .replied, .ended:
      outgoing[id]?.state = .accepted
      outgoing[id]?.message = nil
      if cancels {
        outgoing[id]?.isCancelledTooLate = true
        outputs.append(.consumer(id, .notCancelled))
      }
      if !wasAccepted { outputs.append(.consumer(id, .accepted)) }
      guard cancels || request.isCancelledTooLate, state == .queued || state == .handling else { return }
      sendCancelAfterAccepted(id, request, &outputs)
    case .UNRECOGNIZED: throw ProtocolViolation(fault: .malformed)
    }
  }

  mutating func end(
    _ id: Identifier, _ request: Outgoing, _ event: ConsumerEvent, _ outputs: inout [ExchangeOutput]
  ) {
    outgoing[id] = nil
    if let channel = request.answerChannel { channels[channel]?.unaccepted.remove(id) }
    giveCreditBack(request.channel)
    outputs.append(.consumer(id, event))
  }

  // MARK: Sending again

  /// The provider never had it, or refused it. After the reply time it might have handled and forgotten it.
  private func mayBeSentAgain(_ request: Outgoing) -> Bool {
    request.message != nil && !request.wasSentAgain && lastTime < request.sentTime + limits.replyTime
  }

  /// Before all that wait.
  private mutating func queueAgain(_ id: Identifier, _ request: Outgoing) {
    var request = request
    request.state = .queued
    request.wasSentAgain = true
    (request.channel, request.answerChannel) = (nil, nil)
    outgoing[id] = request
    if queueBegin > 0 {
      queueBegin -= 1
      queue[queueBegin] = id
    } else {
      queue.insert(id, at: 0)
    }
    queuedCount += 1
  }
}
