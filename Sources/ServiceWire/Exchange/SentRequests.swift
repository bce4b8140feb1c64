import Foundation
import SodiumPrimitives

/// The requests to the peer, until each has ended: the consumer's half of an ``Exchange``.
struct SentRequests: Sendable {
  struct Request: Sendable {
    enum State: Equatable, Sendable {
      case queued, sent, accepted
      case cancelling(accepted: Bool)
      /// The channel broke.
      case unknown(since: UInt64, wasAccepted: Bool, cancels: Bool)
    }

    fileprivate(set) var state: State
    /// The request until it is accepted, since it may have to be sent again.
    fileprivate var message: WireRequest?
    /// No later than it was sent.
    fileprivate var sentTime: UInt64 = 0
    fileprivate var wasSentAgain = false
    /// The channel that it was sent over, and where its credit comes back.
    fileprivate var channel: ChannelNumber?
    /// The channel that its answers come over.
    fileprivate(set) var answerChannel: ChannelNumber?
    fileprivate var peerProcess: Identifier?
    /// The tickets of the channels that it was sent over, or asked about.
    fileprivate var tickets: [Data] = []
    /// The app cancelled it too late and was told so; the handler hears of it, over the next
    /// channel when this one breaks.
    fileprivate var isCancelledTooLate = false
  }

  /// The consumer's end of an open channel.
  struct End: Sendable {
    /// Requests that may be sent.
    fileprivate(set) var credit: Int
    /// Requests whose `Cancel` has no answer yet, which will make no difference: they had been
    /// accepted, or have ended.
    fileprivate(set) var settledCancels: Set<Identifier> = []
    /// Requests that were sent here, and of which it is not known that they arrived.
    fileprivate(set) var unaccepted: Set<Identifier> = []
  }

  private let limits: ExchangeLimits
  private(set) var requests: [Identifier: Request] = [:]
  private(set) var ends: [ChannelNumber: End] = [:]
  /// The channel that the last request went over.
  private var sending: ChannelNumber?
  /// Requests that wait for a channel or for credit, oldest first. Ids that are no more in
  /// `requests` count for nothing.
  private(set) var queue: [Identifier] = []
  private(set) var queueBegin = 0
  private(set) var queuedCount = 0

  init(limits: ExchangeLimits) { self.limits = limits }

  private var hasUnknown: Bool {
    requests.values.contains { if case .unknown = $0.state { true } else { false } }
  }

  /// Whether a request waits for a channel, to be sent or to be asked about.
  var hasQueued: Bool { queuedCount > 0 }
  var needsChannel: Bool { queuedCount > 0 || hasUnknown }

  // MARK: Calls of the app

  /// Queues a request. Throws as ``Exchange/submit(_:)`` does.
  mutating func submit(_ request: WireRequest) throws(ProtocolFault) {
    guard let id = Identifier(exactly: request.id), requests[id] == nil else { throw .malformed }
    guard request.attachments == 0 else { throw .unexpectedMessage }
    guard queuedCount < limits.queuedRequestCountMax else { throw .limitExceeded }
    guard request.hasNamesOfRightLength else { throw .malformed }
    requests[id] = Request(state: .queued, message: request)
    queue.append(id)
    queuedCount += 1
  }

  /// Cancels a request. Does nothing for one that has ended.
  mutating func cancel(_ id: Identifier, _ outputs: inout [ExchangeOutput]) {
    guard var request = requests[id] else { return }
    switch request.state {
    case .queued:
      requests[id] = nil
      queuedCount -= 1
      compactQueue()
      return outputs.append(.consumer(id, .cancelled))
    case .sent:
      request.state = .cancelling(accepted: false)
      sendCancel(id, request, afterAccepted: false, &outputs)
    case .accepted:
      request.isCancelledTooLate = true
      sendCancelAfterAccepted(id, request, &outputs)
      outputs.append(.consumer(id, .notCancelled))
    case .cancelling: return
    case .unknown(let since, let wasAccepted, _):
      request.state = .unknown(since: since, wasAccepted: wasAccepted, cancels: true)
    }
    requests[id] = request
  }

  private func sendCancel(
    _ id: Identifier, _ request: Request, afterAccepted: Bool, _ outputs: inout [ExchangeOutput]
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
  private mutating func sendCancelAfterAccepted(
    _ id: Identifier, _ request: Request, _ outputs: inout [ExchangeOutput]
  ) {
    guard let number = request.answerChannel, let end = ends[number],
      end.settledCancels.count < limits.unansweredCancelCountMax, !end.settledCancels.contains(id)
    else { return }
    ends[number]?.settledCancels.insert(id)
    sendCancel(id, request, afterAccepted: true, &outputs)
  }

  // MARK: Queue

  /// Those that were cancelled while they waited take no more room than those that wait.
  private mutating func compactQueue() {
    guard queue.count - queueBegin > 2 * queuedCount + 64 else { return }
    queue = queue[queueBegin...].filter { requests[$0]?.state == .queued }
    queueBegin = 0
  }

  /// Sends what waits, as far as there is credit and the peer reads.
  mutating func flush(_ channels: inout ExchangeChannels, now: UInt64, _ outputs: inout [ExchangeOutput]) {
    guard queuedCount > 0, let number = channelForRequests(channels), let channel = channels[number],
      var end = ends[number], end.settledCancels.count < limits.unansweredCancelCountMax
    else { return }
    while end.credit > 0, channels[number]?.isFull == false, queueBegin < queue.count {
      let id = queue[queueBegin]
      queueBegin += 1
      guard var request = requests[id], request.state == .queued, let message = request.message else {
        continue
      }
      queuedCount -= 1
      let byteCount = WireChannelMessage.with { $0.request = message }.encodedByteCount
      if byteCount > channel.peerFrameByteCountMax {
        requests[id] = nil
        outputs.append(.consumer(id, .refused(.frameLimit)))
        continue
      }
      end.credit -= 1
      request.state = .sent
      request.sentTime = now
      request.channel = number
      request.answerChannel = number
      request.tickets = [channel.ticket]
      request.peerProcess = channel.peerProcess
      requests[id] = request
      end.unaccepted.insert(id)
      outputs.append(.send(.with { $0.request = message }, on: number))
      channels.didSend(byteCount, on: number, &outputs)
    }
    ends[number] = end
    if queueBegin > queue.count - queueBegin {
      queue.removeFirst(queueBegin)
      queueBegin = 0
    }
  }

  /// The newest channel; but the one before, as long as what was sent there may arrive after what
  /// is sent on another.
  private mutating func channelForRequests(_ channels: ExchangeChannels) -> ChannelNumber? {
    if let sending, ends[sending]?.unaccepted.isEmpty == false { return sending }
    sending = channels.newest
    return sending
  }

  /// Ends all requests that wait.
  /// Ends what waits in the queue, but for `kept`.
  mutating func endQueue(
    _ event: ConsumerEvent, besides kept: Set<Identifier> = [], _ outputs: inout [ExchangeOutput]
  ) {
    var rest: [Identifier] = []
    for id in queue[queueBegin...] where requests[id]?.state == .queued {
      if kept.contains(id) {
        rest.append(id)
        continue
      }
      requests[id] = nil
      outputs.append(.consumer(id, event))
    }
    queue = rest
    queueBegin = 0
    queuedCount = rest.count
  }

  /// The provider never had it, or refused it. After the reply time it might have handled and
  /// forgotten it.
  private func mayBeSentAgain(_ request: Request, now: UInt64) -> Bool {
    request.message != nil && !request.wasSentAgain && now < request.sentTime + limits.replyTime
  }

  /// Before all that wait.
  private mutating func queueAgain(_ id: Identifier, _ request: Request) {
    var request = request
    request.state = .queued
    request.wasSentAgain = true
    (request.channel, request.answerChannel) = (nil, nil)
    requests[id] = request
    if queueBegin > 0 {
      queueBegin -= 1
      queue[queueBegin] = id
    } else {
      queue.insert(id, at: 0)
    }
    queuedCount += 1
  }

  // MARK: Channels

  /// Begins with an open channel, over which the peer takes `credit` requests.
  mutating func begin(_ number: ChannelNumber, credit: Int) { ends[number] = End(credit: credit) }

  mutating func takeCredit(_ more: UInt32, _ number: ChannelNumber) throws(ProtocolViolation) {
    guard let have = ends[number]?.credit, more > 0, have + Int(more) <= ExchangeLimits.creditMax else {
      throw ProtocolViolation(fault: .malformed)
    }
    ends[number]?.credit = have + Int(more)
  }

  /// Forgets a channel that has ended. What became of the requests sent over it is not known.
  mutating func channelClosed(_ number: ChannelNumber, now: UInt64) {
    ends[number] = nil
    for (id, request) in requests where request.answerChannel == number {
      requests[id]?.answerChannel = nil
      switch request.state {
      case .queued, .unknown: break
      case .sent: requests[id]?.state = .unknown(since: now, wasAccepted: false, cancels: false)
      case .accepted: requests[id]?.state = .unknown(since: now, wasAccepted: true, cancels: false)
      // An acceptance that waits for the answer to a cancel was not told.
      case .cancelling: requests[id]?.state = .unknown(since: now, wasAccepted: false, cancels: true)
      }
    }
  }

  /// Asks about the requests whose channel broke.
  mutating func inquire(
    over number: ChannelNumber, _ channels: ExchangeChannels, _ outputs: inout [ExchangeOutput]
  ) {
    guard let channel = channels[number], let process = channel.peerProcess else { return }
    for (id, request) in requests {
      guard case .unknown = request.state, request.answerChannel == nil else { continue }
      guard request.peerProcess == process, request.tickets.count < ExchangeLimits.inquiryTicketCountMax
      else {
        requests[id] = nil
        outputs.append(.consumer(id, .lost(arrived: true)))
        continue
      }
      requests[id]?.answerChannel = number
      requests[id]?.tickets.append(channel.ticket)
      outputs.append(
        .send(
          .with {
            $0.inquiry = .with {
              $0.id = id.data
              $0.tickets = request.tickets
            }
          }, on: number))
    }
  }

  /// Ends the requests whose fate was not known for the whole *reply time*.
  mutating func tick(now: UInt64, _ outputs: inout [ExchangeOutput]) {
    for (id, request) in requests {
      guard case .unknown(let since, _, _) = request.state, now >= since + limits.replyTime else { continue }
      requests[id] = nil
      outputs.append(.consumer(id, .lost(arrived: true)))
    }
  }

  // MARK: Messages of the peer

  private func request(_ id: Identifier, _ number: ChannelNumber) throws(ProtocolViolation) -> Request {
    guard let request = requests[id], request.answerChannel == number else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    return request
  }

  func takeWaiting(
    _ id: Identifier, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    switch try request(id, number).state {
    case .sent: outputs.append(.consumer(id, .waitsForUnlock))
    case .cancelling(accepted: false): break
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  mutating func takeAccepted(
    _ id: Identifier, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    switch request.state {
    case .sent:
      requests[id]?.state = .accepted
      requests[id]?.message = nil
      outputs.append(.consumer(id, .accepted))
    case .cancelling(accepted: false): requests[id]?.state = .cancelling(accepted: true)
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    ends[number]?.unaccepted.remove(id)
  }

  mutating func takeRefused(
    _ id: Identifier, _ failure: WireFailure, _ number: ChannelNumber, _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    try failure.check()
    switch request.state {
    case .sent: break
    case .cancelling(accepted: false): ends[number]?.settledCancels.insert(id)
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
      ends[number]?.settledCancels.insert(id)
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
    if ends[number]?.settledCancels.remove(id) != nil {
      guard !done else { throw ProtocolViolation(fault: .unexpectedMessage) }
      return
    }
    let request = try request(id, number)
    switch (request.state, done) {
    case (.cancelling, true): end(id, request, .cancelled, &outputs)
    case (.cancelling(accepted: true), false):
      requests[id]?.state = .accepted
      outputs.append(.consumer(id, .notCancelled))
      outputs.append(.consumer(id, .accepted))
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  mutating func takeStanding(
    _ id: Identifier, _ state: WireRequestState, _ number: ChannelNumber, now: UInt64,
    _ outputs: inout [ExchangeOutput]
  ) throws(ProtocolViolation) {
    let request = try request(id, number)
    guard case .unknown(_, let wasAccepted, let cancels) = request.state else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    switch state {
    // Withdrawn, or never there: the handler did not see it.
    case .unheard where cancels && !wasAccepted: end(id, request, .cancelled, &outputs)
    case .unheard where !wasAccepted && mayBeSentAgain(request, now: now): queueAgain(id, request)
    case .unheard: end(id, request, .lost(arrived: wasAccepted), &outputs)
    case .arrived where wasAccepted: throw ProtocolViolation(fault: .unexpectedMessage)
    case .arrived:
      requests[id]?.state = cancels ? .cancelling(accepted: false) : .sent
      ends[number]?.unaccepted.insert(id)
      if cancels { sendCancel(id, request, afterAccepted: false, &outputs) }
    case .queued, .handling, .replied, .ended:
      requests[id]?.state = .accepted
      requests[id]?.message = nil
      if cancels {
        requests[id]?.isCancelledTooLate = true
        outputs.append(.consumer(id, .notCancelled))
      }
      if !wasAccepted { outputs.append(.consumer(id, .accepted)) }
      guard cancels || request.isCancelledTooLate, state == .queued || state == .handling else { return }
      sendCancelAfterAccepted(id, request, &outputs)
    case .UNRECOGNIZED: throw ProtocolViolation(fault: .malformed)
    }
  }

  private mutating func end(
    _ id: Identifier, _ request: Request, _ event: ConsumerEvent, _ outputs: inout [ExchangeOutput]
  ) {
    requests[id] = nil
    if let channel = request.answerChannel { ends[channel]?.unaccepted.remove(id) }
    if let channel = request.channel { ends[channel]?.credit += 1 }
    outputs.append(.consumer(id, event))
  }
}
