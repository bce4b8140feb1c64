import Foundation
import SodiumPrimitives

/// The requests of the peer, until each is forgotten, and the replies that are kept for it: the
/// provider's half of an ``Exchange``.
struct ReceivedRequests: Sendable {
  struct Request: Sendable {
    enum State: Equatable, Sendable {
      case arrived, queued, handling
      case replied(WireReply)
      case ended

      var isAnswered: Bool {
        switch self {
        case .replied, .ended: true
        case .arrived, .queued, .handling: false
        }
      }
    }

    fileprivate(set) var state: State = .arrived
    /// The channel that its answers go over; nil after that has ended.
    fileprivate(set) var channel: ChannelNumber?
    /// The channel whose credit it took; nil after that has ended.
    fileprivate(set) var creditChannel: ChannelNumber?
    fileprivate let peerProcess: Identifier?
    /// When the channel broke.
    fileprivate var brokenSince: UInt64 = 0
    fileprivate var replySent: UInt64 = 0
    /// As encoded.
    fileprivate var replyByteCount = 0
    /// What the answer takes until it is acknowledged.
    fileprivate(set) var keptReplyByteCount = 0
    fileprivate(set) var requestByteCount: Int
    /// The answer waits for room on its channel.
    fileprivate(set) var isAnswerWaiting = false
    /// The app was told that nobody gets the reply: a failure stands in its place.
    fileprivate var isReplyGivenUp = false
    /// Ended, and a delivery brings the reply.
    fileprivate var isReplyDelivered = false
    /// The handler was told, which happens once.
    fileprivate var isCancelRequested = false

    fileprivate init(channel: ChannelNumber, peerProcess: Identifier?, byteCount: Int) {
      self.channel = channel
      creditChannel = channel
      self.peerProcess = peerProcess
      requestByteCount = byteCount
    }
  }

  /// The provider's end of a channel.
  struct End: Sendable {
    /// Requests that the peer may send.
    fileprivate(set) var granted: Int
    /// What was left out of the first credit because earlier requests of the peer are not forgotten
    /// yet.
    fileprivate(set) var owed: Int
    /// Answers to the peer's requests that wait for room, oldest first.
    fileprivate var waitingAnswers: [Identifier] = []
  }

  private let limits: ExchangeLimits
  private(set) var requests: [Identifier: Request] = [:]
  private(set) var ends: [ChannelNumber: End] = [:]
  /// Bytes of the replies that are kept until the peer has acknowledged them.
  private(set) var keptReplyByteCount = 0
  /// Bytes of the requests that have no answer yet.
  private(set) var keptRequestByteCount = 0
  /// The limits of both at this time.
  var keptReplyByteCountMax: Int
  var keptRequestByteCountMax: Int

  var hasRoomForReplies: Bool { keptReplyByteCount < keptReplyByteCountMax }

  init(limits: ExchangeLimits) {
    self.limits = limits
    keptReplyByteCountMax = limits.keptReplyByteCountMax
    keptRequestByteCountMax = limits.requestByteCountMax
  }

  // MARK: Calls of the app

  /// Accepts a request that has arrived: it waits for its turn.
  mutating func admit(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard let request = requests[id], request.state == .arrived else { return }
    requests[id]?.state = .queued
    guard let channel = request.channel else { return }
    outputs.append(.send(.with { $0.accepted.id = id.data }, on: channel))
  }

  /// Lets the peer know that a request that has arrived waits until the app is unlocked.
  func hold(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard let request = requests[id], request.state == .arrived, let channel = request.channel else { return }
    outputs.append(.send(.with { $0.requestWaiting.id = id.data }, on: channel))
  }

  /// Refuses a request that has arrived.
  mutating func refuse(
    _ id: Identifier, _ failure: WireFailure, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    guard let request = requests[id], request.state == .arrived else { return }
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
    forget(id, request, channels, &outputs)
  }

  /// Begins to handle a request. Returns false if it was withdrawn.
  mutating func begin(_ id: Identifier) -> Bool {
    guard requests[id]?.state == .queued else { return false }
    requests[id]?.state = .handling
    return true
  }

  /// Keeps and sends the app's reply. Throws as ``Exchange/reply(_:now:)`` does.
  mutating func reply(
    _ reply: WireReply, now: UInt64, _ channels: inout ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolFault) {
    guard let id = Identifier(exactly: reply.id), let request = requests[id], request.state == .handling,
      reply.attachments == 0
    else { throw .unexpectedMessage }
    guard reply.error.text.utf8.count <= ExchangeLimits.textByteCountMax else { throw .malformed }
    let room = request.channel.flatMap { channels[$0]?.peerFrameByteCountMax }
    var reply = reply
    var byteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
    var exceeded: WireFailure?
    if byteCount > room ?? Int.max {
      exceeded = .frameLimit
    } else if !makeRoom(reply.keptByteCount, &outputs) {
      exceeded = Self.keptReplyLimit
    }
    if let exceeded {
      reply = refuse(id, reply, exceeded, &outputs)
      byteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
    }
    end(id, .replied(reply), byteCount: byteCount, kept: reply.keptByteCount, now: now)
    answer(id, &channels, &outputs)
  }

  /// Ends a request without a reply. Throws as ``Exchange/reply(_:now:)`` does.
  mutating func endWithoutReply(
    _ id: Identifier, isDelivered: Bool, now: UInt64, _ channels: inout ExchangeChannels,
    _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolFault) {
    guard requests[id]?.state == .handling else { throw .unexpectedMessage }
    requests[id]?.isReplyDelivered = isDelivered
    end(id, .ended, byteCount: 0, kept: Self.answerByteCount, now: now)
    answer(id, &channels, &outputs)
  }

  private mutating func end(
    _ id: Identifier, _ state: Request.State, byteCount: Int, kept: Int, now: UInt64
  ) {
    guard var request = requests[id] else { return }
    request.state = state
    request.replyByteCount = byteCount
    request.keptReplyByteCount = kept
    request.brokenSince = now
    request.replySent = now
    keptReplyByteCount += kept
    // What the request takes is the app's own from now on.
    keptRequestByteCount -= request.requestByteCount
    request.requestByteCount = 0
    requests[id] = request
  }

  // MARK: What is kept

  /// What a request takes from its answer until that is acknowledged, about.
  static let answerByteCount = 2 << 10
  private static let keptReplyLimit = WireFailure.limitExceeded("kept reply bytes")

  /// What goes to the consumer in place of a reply that is too long.
  private func refuse(
    _ id: Identifier, _ reply: WireReply, _ failure: WireFailure, _ outputs: inout [ExchangeOutput]
  ) -> WireReply {
    outputs.append(.provider(id, .replyRefused(failure)))
    return .with {
      $0.id = id.data
      $0.failure = failure
      $0.foreground = reply.foreground
    }
  }

  /// Gives up the oldest replies that nobody asked for, until there is room for another. The
  /// requests are not forgotten: their consumer must not hear that they never arrived.
  private mutating func makeRoom(_ byteCount: Int, _ outputs: inout [ExchangeOutput]) -> Bool {
    let room = keptReplyByteCountMax - byteCount
    // Nobody else's reply is given up in vain.
    guard room >= 0 else { return false }
    guard keptReplyByteCount > room else { return true }
    let unheard = requests.filter { $0.value.channel == nil && $0.value.replyByteCount > 0 }
    for (id, request) in unheard.sorted(by: { $0.value.brokenSince < $1.value.brokenSince }) {
      giveUpReply(id, request, &outputs)
      if keptReplyByteCount <= room { return true }
    }
    return false
  }

  private mutating func giveUpReply(_ id: Identifier, _ request: Request, _ outputs: inout [ExchangeOutput]) {
    guard case .replied(let reply) = request.state else { return }
    keptReplyByteCount -= request.keptReplyByteCount - Self.answerByteCount
    requests[id]?.replyByteCount = 0
    requests[id]?.keptReplyByteCount = Self.answerByteCount
    requests[id]?.isReplyGivenUp = true
    requests[id]?.state = .replied(
      .with {
        $0.id = id.data
        $0.failure = Self.keptReplyLimit
        $0.foreground = reply.foreground
      })
    outputs.append(.provider(id, .replyExpired))
  }

  private mutating func forget(
    _ id: Identifier, _ request: Request, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    requests[id] = nil
    keptRequestByteCount -= request.requestByteCount
    keptReplyByteCount -= request.keptReplyByteCount
    if let channel = request.creditChannel {
      ends[channel]?.granted += 1
    } else {
      payCredit(channels, &outputs)
    }
  }

  // MARK: Time

  /// The answered requests that the peer did not acknowledge in time, each with the channel that
  /// its answer went over, if any.
  mutating func overdue(now: UInt64) -> [(id: Identifier, channel: ChannelNumber?)] {
    var overdue: [(Identifier, ChannelNumber?)] = []
    for (id, request) in requests where request.state.isAnswered {
      if request.isAnswerWaiting {
        requests[id]?.replySent = now
      } else if let channel = request.channel {
        // It answers, or somebody would have noticed by now: but not this.
        if now >= request.replySent + limits.replyTime { overdue.append((id, channel)) }
      } else if now >= request.brokenSince + limits.replyTime + limits.idleTime {
        // Longer than the consumer asks, so that what it did not hear of is not taken for what never came.
        overdue.append((id, nil))
      }
    }
    return overdue
  }

  mutating func expire(_ id: Identifier, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]) {
    guard let request = requests[id] else { return }
    forget(id, request, channels, &outputs)
    if !request.isReplyGivenUp { outputs.append(.provider(id, .replyExpired)) }
  }

  // MARK: Channels and credit

  /// Requests that the peer may have under way with what it was granted, over all channels.
  var promisedCount: Int { requests.count + ends.values.reduce(0) { $0 + $1.granted } }

  /// Adds a channel. Returns the credit that it begins with.
  mutating func channelOpened(_ number: ChannelNumber) -> Int {
    let credit = max(0, min(limits.requestCountMax, limits.peerRequestCountMax - promisedCount))
    ends[number] = End(granted: credit, owed: limits.requestCountMax - credit)
    return credit
  }

  /// Begins with a process of the peer. The replies to its other processes expire: only the process
  /// that sent a request can ask for its reply.
  mutating func begin(
    process: Identifier, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    for (id, request) in requests
    where request.channel == nil && request.state.isAnswered && request.peerProcess != process {
      expire(id, channels, &outputs)
    }
  }

  mutating func channelClosed(_ number: ChannelNumber, now: UInt64) {
    ends[number] = nil
    for (id, request) in requests {
      if request.creditChannel == number { requests[id]?.creditChannel = nil }
      guard request.channel == number else { continue }
      requests[id]?.channel = nil
      requests[id]?.isAnswerWaiting = false
      requests[id]?.brokenSince = now
    }
  }

  /// Gives the channels what was left out of their first credit, as far as there is room by now.
  mutating func payCredit(_ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]) {
    for (number, end) in ends where end.owed > 0 && channels.isOpen(number) {
      let more = min(end.owed, limits.peerRequestCountMax - promisedCount)
      guard more > 0 else { continue }
      ends[number]?.owed -= more
      grant(more, on: number, &outputs)
    }
  }

  /// Lets the peer send so many requests more on an open channel.
  mutating func grant(_ more: Int, on number: ChannelNumber, _ outputs: inout [ExchangeOutput]) {
    ends[number]?.granted += more
    outputs.append(.send(.with { $0.credit.more = UInt32(more) }, on: number))
  }

  // MARK: Messages of the peer

  mutating func take(
    _ request: WireRequest, _ number: ChannelNumber, _ channels: ExchangeChannels,
    _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: request.id)
    guard requests[id] == nil else { throw ProtocolViolation(fault: .unexpectedMessage) }
    guard let granted = ends[number]?.granted, granted > 0 else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "requests under way")
    }
    try request.check()
    guard request.attachments == 0 else { throw ProtocolViolation(fault: .unexpectedMessage) }
    let byteCount = request.keptByteCount
    guard byteCount <= keptRequestByteCountMax - keptRequestByteCount, hasRoomForReplies else {
      // It gives its credit back by itself.
      let refused = WireChannelMessage.with {
        $0.refused.id = id.data
        $0.refused.failure = .limitExceeded(
          hasRoomForReplies ? "request bytes of one peer" : "kept reply bytes of one peer")
      }
      return outputs.append(.send(refused, on: number))
    }
    ends[number]?.granted = granted - 1
    keptRequestByteCount += byteCount
    requests[id] = Request(
      channel: number, peerProcess: channels[number]?.peerProcess, byteCount: byteCount)
    outputs.append(.provider(id, .arrived(request)))
  }

  mutating func takeReplyAccepted(
    _ id: Identifier, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    guard let request = requests[id], request.state.isAnswered, !request.isAnswerWaiting else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    if !request.isReplyGivenUp { outputs.append(.provider(id, .replyAccepted)) }
    forget(id, request, channels, &outputs)
  }

  mutating func takeCancel(
    _ id: Identifier, _ afterAccepted: Bool, _ number: ChannelNumber, _ channels: ExchangeChannels,
    _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    var done = false
    if let request = requests[id] {
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
    if done, let request = requests[id] { forget(id, request, channels, &outputs) }
  }

  private mutating func requestCancel(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard requests[id]?.isCancelRequested == false else { return }
    requests[id]?.isCancelRequested = true
    outputs.append(.provider(id, .cancelRequested))
  }

  /// Answers how far a request has got. Its reply goes over this channel from now on.
  mutating func takeInquiry(
    _ id: Identifier, _ number: ChannelNumber, now: UInt64, _ channels: inout ExchangeChannels,
    _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    var state = WireRequestState.unheard
    if let request = requests[id] {
      // Whoever has a channel for it knows: an answer for each question would be a lever.
      guard request.channel == nil else { throw ProtocolViolation(fault: .unexpectedMessage) }
      requests[id]?.channel = number
      switch request.state {
      case .arrived: state = .arrived
      case .queued: state = .queued
      case .handling: state = .handling
      case .replied(var reply):
        state = .replied
        requests[id]?.replySent = now
        if request.replyByteCount > channels[number]?.peerFrameByteCountMax ?? 0 {
          reply = refuse(id, reply, .frameLimit, &outputs)
          let kept = reply.keptByteCount
          keptReplyByteCount += kept - request.keptReplyByteCount
          requests[id]?.keptReplyByteCount = kept
          requests[id]?.replyByteCount = WireChannelMessage.with { $0.reply = reply }.encodedByteCount
          requests[id]?.state = .replied(reply)
        }
      case .ended:
        state = .ended
        requests[id]?.replySent = now
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
    if requests[id]?.state.isAnswered == true { answer(id, &channels, &outputs) }
  }

  // MARK: Answers, as far as there is room

  /// Sends the reply, or that there is none, after those that wait already.
  private mutating func answer(
    _ id: Identifier, _ channels: inout ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    guard let number = requests[id]?.channel else { return }
    requests[id]?.isAnswerWaiting = true
    ends[number]?.waitingAnswers.append(id)
    sendAnswers(on: number, &channels, &outputs)
  }

  mutating func sendAnswers(
    on number: ChannelNumber, _ channels: inout ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    while channels[number]?.isFull == false, let id = ends[number]?.waitingAnswers.first {
      ends[number]?.waitingAnswers.removeFirst()
      guard let request = requests[id], request.isAnswerWaiting, request.channel == number else { continue }
      requests[id]?.isAnswerWaiting = false
      if case .replied(let reply) = request.state {
        outputs.append(.send(.with { $0.reply = reply }, on: number))
      } else {
        let noReply = WireNoReply.with {
          $0.id = id.data
          $0.isDelivered = request.isReplyDelivered
        }
        outputs.append(.send(.with { $0.noReply = noReply }, on: number))
      }
      channels.didSend(request.replyByteCount, on: number, &outputs)
    }
  }
}

extension WireRequest {
  /// What a request takes until it is answered, about: 4 KiB for itself and its handler, and what
  /// its params take.
  package var keptByteCount: Int { (4 << 10) + (hasParams ? params.keptByteCount : 0) }
}

extension WireReply {
  package var keptByteCount: Int {
    let answerByteCount = ReceivedRequests.answerByteCount
    return switch result {
    case .params(let value): answerByteCount + value.keptByteCount
    case .error(let error):
      answerByteCount + error.text.utf8.count + (error.hasDetails ? error.details.keptByteCount : 0)
    case .failure, nil: answerByteCount
    }
  }
}
