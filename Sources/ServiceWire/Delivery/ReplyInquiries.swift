import SodiumPrimitives

/// Questions about replies to requests that were delivered, in both directions, and ends of such requests that were not said yet.
struct ReplyInquiries: Sendable {
  enum Inquiry: Equatable {
    case waiting
    case asked(ChannelNumber)
  }

  /// One end of a channel.
  struct End {
    /// Questions of ours without an answer.
    var count = 0
    /// Questions of the peer's without an answer.
    var asked: Set<Identifier> = []
  }

  private let limits: DeliveryLimits
  private(set) var inquiries: [Identifier: Inquiry] = [:]
  /// Questions of ours and ends of requests that no channel has taken yet, oldest first.
  private var waitingInquiries: [Identifier] = []
  private var waitingEnds: [WireRequestEnded] = []
  private(set) var ends: [ChannelNumber: End] = [:]

  init(limits: DeliveryLimits) { self.limits = limits }

  var isIdle: Bool {
    inquiries.isEmpty && waitingEnds.isEmpty && ends.values.allSatisfy { $0.asked.isEmpty }
  }

  /// Something waits for a channel.
  var hasWaiting: Bool { !(waitingInquiries.isEmpty && waitingEnds.isEmpty) }

  // MARK: What its owner says

  /// False for a question that is asked already.
  mutating func inquire(_ request: Identifier) -> Bool {
    guard inquiries[request] == nil else { return false }
    inquiries[request] = .waiting
    waitingInquiries.append(request)
    return true
  }

  mutating func endRequest(_ end: WireRequestEnded) { waitingEnds.append(end) }

  mutating func standing(
    _ request: Identifier, isAwaited: Bool, _ channels: DeliveryChannels,
    _ outputs: inout [DeliveryOutput]
  ) {
    for number in channels.numbers where ends[number]?.asked.remove(request) != nil {
      outputs.append(
        .send(
          .with {
            $0.replyStanding = .with {
              $0.id = request.data
              $0.isAwaited = isAwaited
            }
          }, on: number))
    }
  }

  // MARK: What the peer says

  mutating func take(
    _ message: WireReplyInquiry, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    guard let end = ends[number], !end.asked.contains(id) else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard end.asked.count < limits.inquiryCountMax else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "questions about replies")
    }
    ends[number]?.asked.insert(id)
    outputs.append(.inquired(request: id))
  }

  mutating func take(
    _ message: WireReplyStanding, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    guard inquiries[id] == .asked(number) else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    inquiries[id] = nil
    ends[number]?.count -= 1
    outputs.append(.standing(request: id, isAwaited: message.isAwaited))
  }

  // MARK: Channels

  mutating func channelOpened(_ number: ChannelNumber) { ends[number] = End() }

  mutating func channelClosed(_ number: ChannelNumber) {
    ends[number] = nil
    for (id, inquiry) in inquiries.sorted(by: { $0.key < $1.key }) where inquiry == .asked(number) {
      inquiries[id] = .waiting
      waitingInquiries.append(id)
    }
  }

  mutating func flush(over number: ChannelNumber, _ outputs: inout [DeliveryOutput]) {
    for end in waitingEnds { outputs.append(.send(.with { $0.requestEnded = end }, on: number)) }
    waitingEnds = []
    let count = min(waitingInquiries.count, limits.inquiryCountMax - (ends[number]?.count ?? 0))
    for id in waitingInquiries.prefix(count) {
      inquiries[id] = .asked(number)
      outputs.append(.send(.with { $0.replyInquiry.id = id.data }, on: number))
    }
    waitingInquiries.removeFirst(count)
    ends[number]?.count += count
  }
}
