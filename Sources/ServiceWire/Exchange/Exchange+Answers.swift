import Foundation
package import SodiumPrimitives

extension Exchange {
  // MARK: What the app answers

  /// The app's reply. Throws `unexpectedMessage` when the request is not being handled, or was replied to, or the reply has files; `malformed` when the text of
  /// its error is too long. Of a reply that cannot be sent comes `replyRefused`, and the request has ended with that failure.
  package mutating func reply(_ reply: WireReply, now: UInt64) throws(ProtocolFault) -> [ExchangeOutput] {
    note(now)
    guard let id = Identifier(exactly: reply.id), var request = incoming[id], request.state == .handling,
      reply.attachments == 0
    else { throw .unexpectedMessage }
    guard reply.error.text.utf8.count <= ExchangeLimits.textByteCountMax else { throw .malformed }
    var reply = reply
    var byteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
    var kept = Self.keptByteCount(of: reply)
    var outputs: [ExchangeOutput] = []
    let room = request.channel.flatMap { channels[$0]?.peerFrameByteCountMax }
    var exceeded: WireFailure?
    if byteCount > room ?? Int.max {
      exceeded = WireFailure.frameLimit
    } else if !makeRoom(kept, &outputs) {
      exceeded = Self.keptReplyLimit
    }
    if let exceeded {
      reply = refuse(id, reply, exceeded, &outputs)
      byteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
      kept = Self.keptByteCount(of: reply)
    }
    request.state = .replied(reply)
    request.replyByteCount = byteCount
    request.keptReplyByteCount = kept
    request.brokenSince = now
    request.replySent = now
    keptReplyByteCount += kept
    incoming[id] = request
    releaseRequest(id)
    answer(id, &outputs)
    return outputs
  }

  private static let keptReplyLimit = WireFailure.limitExceeded("kept reply bytes")

  /// What a request takes from its answer until that is acknowledged, about.
  static let answerByteCount = 2 << 10

  static func keptByteCount(of reply: WireReply) -> Int {
    switch reply.result {
    case .params(let value): answerByteCount + value.keptByteCount
    case .error(let error):
      answerByteCount + error.text.utf8.count + (error.hasDetails ? error.details.keptByteCount : 0)
    case .failure, nil: answerByteCount
    }
  }

  /// What goes to the consumer in place of a reply that is too long.
  func refuse(
    _ id: Identifier, _ reply: WireReply, _ failure: WireFailure, _ outputs: inout [ExchangeOutput]
  ) -> WireReply {
    outputs.append(.provider(id, .replyRefused(failure)))
    return .with {
      $0.id = id.data
      $0.failure = failure
      $0.foreground = reply.foreground
    }
  }

  /// Gives up the oldest replies that nobody asked for, until there is room for another. The requests are not forgotten: their consumer
  /// must not hear that they never arrived.
  private mutating func makeRoom(_ byteCount: Int, _ outputs: inout [ExchangeOutput]) -> Bool {
    let room = keptReplyByteCountMax - byteCount
    guard keptReplyByteCount > room else { return true }
    let unheard = incoming.filter { $0.value.channel == nil && $0.value.replyByteCount > 0 }
    for (id, request) in unheard.sorted(by: { $0.value.brokenSince < $1.value.brokenSince }) {
      giveUpReply(id, request, &outputs)
      if keptReplyByteCount <= room { return true }
    }
    return false
  }

  private mutating func giveUpReply(_ id: Identifier, _ request: Incoming, _ outputs: inout [ExchangeOutput])
  {
    guard case .replied(let reply) = request.state else { return }
    keptReplyByteCount -= request.keptReplyByteCount - Self.answerByteCount
    incoming[id]?.replyByteCount = 0
    incoming[id]?.keptReplyByteCount = Self.answerByteCount
    incoming[id]?.isReplyGivenUp = true
    incoming[id]?.state = .replied(
      .with {
        $0.id = id.data
        $0.failure = Self.keptReplyLimit
        $0.foreground = reply.foreground
      })
    outputs.append(.provider(id, .replyExpired))
  }

  /// The app will not reply, or a delivery brings its reply. Throws as ``reply(_:now:)`` does.
  package mutating func endWithoutReply(
    _ id: Identifier, isDelivered: Bool = false, now: UInt64
  ) throws(ProtocolFault) -> [ExchangeOutput] {
    note(now)
    guard var request = incoming[id], request.state == .handling else { throw .unexpectedMessage }
    request.state = .ended
    request.isReplyDelivered = isDelivered
    request.keptReplyByteCount = Self.answerByteCount
    keptReplyByteCount += Self.answerByteCount
    request.brokenSince = now
    request.replySent = now
    incoming[id] = request
    releaseRequest(id)
    var outputs: [ExchangeOutput] = []
    answer(id, &outputs)
    return outputs
  }

  // MARK: Answers, as far as there is room

  /// Sends the reply, or that there is none, after those that wait already.
  mutating func answer(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard let number = incoming[id]?.channel else { return }
    incoming[id]?.isAnswerWaiting = true
    channels[number]?.waitingAnswers.append(id)
    sendAnswers(on: number, &outputs)
  }

  mutating func sendAnswers(on number: ChannelNumber, _ outputs: inout [ExchangeOutput]) {
    while channels[number]?.isFull == false, let id = channels[number]?.waitingAnswers.first {
      channels[number]?.waitingAnswers.removeFirst()
      guard let request = incoming[id], request.isAnswerWaiting, request.channel == number else { continue }
      incoming[id]?.isAnswerWaiting = false
      if case .replied(let reply) = request.state {
        outputs.append(.send(.with { $0.reply = reply }, on: number))
      } else {
        let noReply = WireNoReply.with {
          $0.id = id.data
          $0.isDelivered = request.isReplyDelivered
        }
        outputs.append(.send(.with { $0.noReply = noReply }, on: number))
      }
      if channels[number]?.didSend(request.replyByteCount, limits) == true {
        outputs.append(.awaitRoom(on: number))
      }
    }
  }
}
