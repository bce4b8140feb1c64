import Foundation
import ServiceValues
import SodiumPrimitives

/// Deliveries of ours, until each is settled: the sender's half of ``Deliveries``.
struct SentDeliveries: Sendable {
  struct Outgoing {
    enum State: Equatable {
      case queued
      /// The owner loads the message.
      case loading(ChannelNumber)
      case offered(ChannelNumber)
      /// It is offered, and the receiver answers when it runs.
      case waiting(ChannelNumber)
      /// The owner loads a page.
      case paging(ChannelNumber, from: UInt64)
      case accepted(ChannelNumber)
      /// The receiver was told that it is not to be delivered.
      case cancelling(ChannelNumber)
      /// The owner has forgotten it; the receiver's answer is to come.
      case failed(ChannelNumber)

      var channel: ChannelNumber? {
        switch self {
        case .queued: nil
        case .loading(let channel), .offered(let channel), .waiting(let channel), .paging(let channel, _),
          .accepted(let channel), .cancelling(let channel), .failed(let channel):
          channel
        }
      }
    }

    let number: UInt64
    let fileCount: UInt64
    let byteCount: UInt64
    let isReply: Bool
    var state: State = .queued
    /// Over an earlier channel, or by an earlier process: the receiver may have committed it.
    var wasOffered: Bool
    var wasAccepted = false
    var isCancelled = false
    /// How often its number was taken since more of it arrived than ever before: another copy of the sender's container may take
    /// numbers in between, but a receiver that always says so must not keep the sender busy for ever.
    var renumberCount = 0
    static let renumberCountMax = 8
    /// That of the last offer.
    var incarnation = WireIncarnation()
    /// What the offer says that the receiver has; nil after it was contradicted.
    var delivered: UInt64?
    /// Where the next page begins; nil before the first.
    var nextPage: UInt64?
    var stream: SentStream?
    /// What the receiver said last that it waits for.
    var waitReason = WireDeliveryWaiting.Reason.unlock
    /// The receiver has asked again over this channel, for contents that did not open.
    var wasAskedAgain = false
    /// What the receiver said that it has.
    var received: UInt64 = 0
    /// The most that it said in a `DeliveryProgress`.
    var receivedMax: UInt64 = 0

    /// The receiver has it in its hands, and holds room for it.
    var takesRoom: Bool {
      switch state {
      case .offered, .waiting, .paging, .accepted: true
      case .queued, .loading, .cancelling, .failed: false
      }
    }
  }

  struct SentStream: Equatable {
    let number: UInt32
    /// Frames that may be sent, in all.
    var credit: UInt64
  }

  private let limits: DeliveryLimits
  /// How many have a channel at once. It is less than the limit says when the receiver had no room for so many together.
  private var offeredCountMax: Int
  /// Those that have arrived since that changed.
  private var arrivedCount = 0
  /// After so many it is tried with one more.
  private static let arrivedCountMax = 8
  private(set) var outgoing: [Identifier: Outgoing] = [:]
  /// Of those in `outgoing` that wait for a channel or for their turn, by number.
  private(set) var queue: [Identifier] = []
  /// Those that have a channel.
  private(set) var offeredCount = 0
  /// Those of them whose receiver answers when it runs.
  private(set) var waiting: Set<Identifier> = []
  /// What the receiver said last that they wait for.
  private(set) var waitReason = WireDeliveryWaiting.Reason.unlock
  /// The last number that the peer gave to a stream, for each channel.
  private var lastStreams: [ChannelNumber: UInt32] = [:]

  init(limits: DeliveryLimits) {
    self.limits = limits
    offeredCountMax = limits.sentCountMax
  }

  var count: Int { outgoing.count }
  var isEmpty: Bool { outgoing.isEmpty }
  /// There is one that has a channel and does not wait until its receiver runs.
  var isMoving: Bool { offeredCount > waiting.count }
  /// Something waits for a channel, or for its turn.
  var hasWaiting: Bool { !queue.isEmpty }
  func contains(_ id: Identifier) -> Bool { outgoing[id] != nil }

  // MARK: What its owner says

  /// False for an id that is known already.
  mutating func enqueue(
    _ id: Identifier, number: UInt64, fileCount: UInt64, byteCount: UInt64, isReply: Bool, wasOffered: Bool
  ) -> Bool {
    guard outgoing[id] == nil else { return false }
    outgoing[id] = Outgoing(
      number: number, fileCount: fileCount, byteCount: byteCount, isReply: isReply, wasOffered: wasOffered)
    insertInQueue(id, number)
    return true
  }

  mutating func offer(
    _ offer: WireOffer, _ channels: DeliveryChannels, _ outputs: inout [DeliveryOutput]
  ) {
    guard let id = Identifier(exactly: offer.id), let delivery = outgoing[id],
      case .loading(let number) = delivery.state,
      let channel = channels[number]
    else { return }
    var offer = offer
    offer.number = delivery.number
    offer.fileCount = delivery.fileCount
    offer.byteCount = delivery.byteCount
    switch offer.message {
    case .request: offer.request.attachments = delivery.fileCount
    case .reply: offer.reply.attachments = delivery.fileCount
    case nil: break
    }
    let listed = offer.files.reduce(0) { $0 + $1.encodedByteCount }
    if listed > DeliveryLimits.offeredFilesByteCountMax { offer.files = [] }
    var message = WireChannelMessage.with { $0.offer = offer }
    var byteCount = message.encodedByteCount
    if byteCount > channel.frameByteCountMax, !offer.files.isEmpty {
      message.offer.files = []
      byteCount = message.encodedByteCount
    }
    guard byteCount <= channel.frameByteCountMax else {
      offeredCount -= 1
      return settle(id, .refused(.frameLimit), &outputs)
    }
    outgoing[id]?.wasOffered = true
    outgoing[id]?.wasAskedAgain = false
    outgoing[id]?.incarnation = offer.incarnation
    outgoing[id]?.delivered = offer.delivered
    outgoing[id]?.state = .offered(number)
    outputs.append(.send(message, on: number))
    if delivery.isCancelled { sendCancel(id, on: number, &outputs) }
  }

  mutating func page(
    _ id: Identifier, from: UInt64, _ files: [WireOfferedFile], _ channels: DeliveryChannels,
    _ outputs: inout [DeliveryOutput]
  ) {
    guard let delivery = outgoing[id], case .paging(let number, from) = delivery.state,
      let channel = channels[number]
    else { return }
    let room = min(limits.pageByteCountMax, channel.frameByteCountMax - Self.pageFrameByteCount)
    var page = WireManifestPage.with {
      $0.id = id.data
      $0.from = from
    }
    var byteCount = Self.pageByteCount
    for file in files.prefix(limits.pageFileCountMax) {
      let encoded = (try? file.serializedBytes() as [UInt8])?.count ?? Int.max - room
      guard byteCount + encoded + Self.fileByteCount <= room else { break }
      byteCount += encoded + Self.fileByteCount
      page.files.append(file)
    }
    guard !page.files.isEmpty else {
      return fail(
        id,
        files.isEmpty
          ? .with { $0.error = 23 } : .limitExceeded(DeliveryLimits.pageName), &outputs)
    }
    outgoing[id]?.nextPage = from + UInt64(page.files.count)
    outgoing[id]?.state = .offered(number)
    outputs.append(.send(.with { $0.manifestPage = page }, on: number))
  }

  /// Bytes at most of a page without its files, of what stands before one file, and before a page in its frame.
  private static let pageByteCount = 2 + Identifier.byteCount + 11
  private static let fileByteCount = 6
  private static let pageFrameByteCount = 16

  func canFail(_ id: Identifier) -> Bool {
    switch outgoing[id]?.state {
    case nil, .failed, .cancelling: false
    case .queued, .loading, .offered, .waiting, .paging, .accepted: true
    }
  }

  mutating func fail(_ id: Identifier, _ failure: WireFailure, _ outputs: inout [DeliveryOutput]) {
    guard canFail(id), let delivery = outgoing[id] else { return }
    let end: SentDeliveryEnd = delivery.wasOffered ? .lost(failure) : .refused(failure)
    switch delivery.state {
    case .failed, .cancelling: break
    case .queued:
      queue.removeAll { $0 == id }
      settle(id, end, &outputs)
    case .loading:
      offeredCount -= 1
      settle(id, end, &outputs)
    case .offered(let number), .waiting(let number), .paging(let number, _), .accepted(let number):
      endStream(id, &outputs)
      waiting.remove(id)
      outgoing[id]?.state = .failed(number)
      outputs.append(
        .send(
          .with {
            $0.deliveryFailed = .with {
              $0.id = id.data
              $0.failure = failure.sendable
            }
          }, on: number))
      outputs.append(.settled(id, .refused(failure)))
    }
  }

  /// Returns whether its receiver has to hear of it over the next channel.
  mutating func cancel(_ id: Identifier, _ outputs: inout [DeliveryOutput]) -> Bool {
    guard let delivery = outgoing[id], !delivery.isCancelled else { return false }
    switch delivery.state {
    case .failed, .cancelling: break
    case .queued where !delivery.wasOffered:
      queue.removeAll { $0 == id }
      settle(id, .cancelled, &outputs)
    case .loading where !delivery.wasOffered:
      offeredCount -= 1
      settle(id, .cancelled, &outputs)
    case .queued, .loading:
      outgoing[id]?.isCancelled = true
      return true
    case .offered(let number), .waiting(let number), .paging(let number, _), .accepted(let number):
      outgoing[id]?.isCancelled = true
      waiting.remove(id)
      sendCancel(id, on: number, &outputs)
    }
    return false
  }

  private mutating func sendCancel(
    _ id: Identifier, on number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) {
    endStream(id, &outputs)
    outgoing[id]?.state = .cancelling(number)
    outputs.append(.send(.with { $0.deliveryCancelled.id = id.data }, on: number))
  }

  // MARK: The end

  private mutating func endStream(_ id: Identifier, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = outgoing[id], let stream = delivery.stream,
      let number = delivery.state.channel
    else { return }
    outgoing[id]?.stream = nil
    outputs.append(.endStream(id, on: number, stream: stream.number))
  }

  private mutating func settle(
    _ id: Identifier, _ end: SentDeliveryEnd, _ outputs: inout [DeliveryOutput]
  ) {
    outgoing[id] = nil
    outputs.append(.settled(id, end))
  }

  // MARK: What the receiver answers

  /// One that was offered on this channel.
  private func delivery(_ id: Identifier, _ number: ChannelNumber) throws(ProtocolViolation)
    -> Outgoing
  {
    guard let delivery = outgoing[id], delivery.state.channel == number,
      delivery.state != .loading(number)
    else { throw ProtocolViolation(fault: .unexpectedMessage) }
    return delivery
  }

  func waitReason(of id: Identifier) -> WireDeliveryWaiting.Reason? {
    waiting.contains(id) ? outgoing[id]?.waitReason : nil
  }

  /// Before another answer, and again only with another reason.
  mutating func takeWaiting(
    _ message: WireDeliveryWaiting, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    if case .UNRECOGNIZED = message.reason { throw ProtocolViolation(fault: .malformed) }
    switch delivery.state {
    case .offered where delivery.nextPage == nil: break
    case .waiting where delivery.waitReason != message.reason: break
    case .cancelling, .failed: return
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    outgoing[id]?.state = .waiting(number)
    outgoing[id]?.waitReason = message.reason
    waiting.insert(id)
    waitReason = message.reason
    outputs.append(.waiting(id))
  }

  mutating func takeManifestWanted(
    _ message: WireManifestWanted, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    guard message.from < delivery.fileCount else { throw ProtocolViolation(fault: .malformed) }
    switch delivery.state {
    case .waiting,
      .offered where delivery.nextPage ?? message.from == message.from:
      waiting.remove(id)
      outgoing[id]?.state = .paging(number, from: message.from)
      outputs.append(.wantsPage(id, from: message.from))
    case .cancelling, .failed: break
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  mutating func takeAccepted(
    _ message: WireDeliveryAccepted, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    let hasStream = message.resumeFrom < delivery.byteCount
    guard message.resumeFrom <= delivery.byteCount,
      hasStream ? message.key.count == DeliveryLimits.keyByteCount : message.key.isEmpty,
      hasStream == (message.stream > 0), hasStream == (message.credit > 0)
    else { throw ProtocolViolation(fault: .malformed) }
    switch delivery.state {
    // The manifest is asked for as a whole, or the receiver knows it from before.
    case .waiting,
      .offered where delivery.nextPage ?? delivery.fileCount == delivery.fileCount:
      guard message.damaged == 0 else { throw ProtocolViolation(fault: .malformed) }
    // Some of it did not open there.
    case .accepted where message.damaged > 0 && !delivery.wasAskedAgain:
      guard hasStream, message.damaged - 1 >= message.resumeFrom,
        message.damaged <= delivery.byteCount
      else {
        throw ProtocolViolation(fault: .malformed)
      }
    case .cancelling, .failed: break
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    if hasStream {
      guard message.stream > lastStreams[number] ?? 0 else {
        throw ProtocolViolation(fault: .malformed)
      }
      lastStreams[number] = message.stream
    }
    switch delivery.state {
    case .offered, .waiting, .accepted: break
    default: return
    }
    endStream(id, &outputs)
    waiting.remove(id)
    outgoing[id]?.wasAskedAgain = message.damaged > 0
    outgoing[id]?.state = .accepted(number)
    outgoing[id]?.received = message.resumeFrom
    outgoing[id]?.wasAccepted = true
    if !delivery.wasAccepted { outputs.append(.accepted(id)) }
    if message.resumeFrom > 0 { outputs.append(.progressed(id, received: message.resumeFrom)) }
    guard hasStream else { return }
    outgoing[id]?.stream = SentStream(number: message.stream, credit: message.credit)
    outputs.append(
      .beginStream(
        id, on: number, stream: message.stream, key: message.key, from: message.resumeFrom,
        credit: message.credit, checking: message.damaged > 0 ? message.damaged - 1 : nil))
  }

  mutating func takeProgress(
    _ message: WireDeliveryProgress, _ number: ChannelNumber, _ channels: inout DeliveryChannels,
    _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    switch delivery.state {
    case .accepted: break
    case .cancelling, .failed: return
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard let stream = delivery.stream else { throw ProtocolViolation(fault: .unexpectedMessage) }
    // It takes nothing back.
    guard message.received >= delivery.received, message.received <= delivery.byteCount,
      message.credit >= stream.credit
    else { throw ProtocolViolation(fault: .malformed) }
    if message.received > delivery.received {
      outgoing[id]?.received = message.received
      // A receiver that lets go of what it has taken is not dialled again at once for ever.
      if message.received > delivery.receivedMax {
        channels.served(number)
        outgoing[id]?.receivedMax = message.received
        outgoing[id]?.renumberCount = 0
      }
      outputs.append(.progressed(id, received: message.received))
    }
    if message.credit > stream.credit {
      outgoing[id]?.stream?.credit = message.credit
      outputs.append(.raiseCredit(id, on: number, stream: stream.number, to: message.credit))
    }
  }

  /// Before another answer, and once for an offer.
  mutating func takePutBack(
    _ message: WirePutBack, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    switch delivery.state {
    case .offered where delivery.nextPage == nil: break
    case .cancelling, .failed: break
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard let delivered = delivery.delivered else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard message.count < delivered else { throw ProtocolViolation(fault: .malformed) }
    outgoing[id]?.delivered = nil
    outputs.append(.putBack(id, delivery.incarnation, count: message.count, delivered: delivered))
  }

  mutating func takeEnd(
    _ id: Identifier, _ end: SentDeliveryEnd, generation: UInt64 = 0, count: UInt64 = 0,
    _ number: ChannelNumber, _ channels: inout DeliveryChannels, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let delivery = try delivery(id, number)
    if case .refused(let failure) = end {
      try failure.check()
      // Nobody drives this app to the last generation.
      guard generation <= delivery.incarnation.generation + WireIncarnation.stepMax else {
        throw ProtocolViolation(fault: .malformed)
      }
    }
    if case .committed = end { hasArrived() }
    var end = end
    switch (delivery.state, end) {
    // The owner has forgotten it.
    case (.failed, _): break
    case (.cancelling, .committed): outputs.append(.tooLate(id))
    case (.cancelling, _): end = .cancelled
    case (_, .cancelled): throw ProtocolViolation(fault: .unexpectedMessage)
    default: break
    }
    endStream(id, &outputs)
    waiting.remove(id)
    offeredCount -= 1
    channels.served(number)
    if count > 0 { outputs.append(.delivered(id, delivery.incarnation, count: count)) }
    if case .refused(let failure) = end,
      failure.error == UInt32(ServicesError.numberTaken.rawValue),
      delivery.renumberCount < Outgoing.renumberCountMax, delivery.state != .failed(number)
    {
      outgoing[id]?.renumberCount += 1
      outgoing[id]?.state = .queued
      outgoing[id]?.nextPage = nil
      outputs.append(.numberTaken(id, delivery.incarnation, generation: generation))
      return insertInQueue(id, delivery.number)
    }
    if case .failed = delivery.state { outgoing[id] = nil } else { settle(id, end, &outputs) }
  }

  private mutating func hasArrived() {
    arrivedCount += 1
    guard arrivedCount >= Self.arrivedCountMax, offeredCountMax < limits.sentCountMax else { return }
    offeredCountMax += 1
    arrivedCount = 0
  }

  // MARK: Channels

  /// Those that went over it wait for another one. `isOverLimit`: the receiver has ended it with `limitExceeded`; when it had
  /// several in its hands, it may have no room for them together.
  mutating func channelClosed(
    _ number: ChannelNumber, isOverLimit: Bool, _ outputs: inout [DeliveryOutput]
  ) {
    lastStreams[number] = nil
    let sent = outgoing.filter { $0.value.state.channel == number }
    let takenCount = sent.count { $0.value.takesRoom }
    if isOverLimit, takenCount > 1 {
      offeredCountMax = takenCount / 2
      arrivedCount = 0
    }
    for (id, delivery) in sent.sorted(by: { $0.value.number < $1.value.number }) {
      endStream(id, &outputs)
      waiting.remove(id)
      offeredCount -= 1
      switch delivery.state {
      case .failed: outgoing[id] = nil
      case .loading where delivery.isCancelled && !delivery.wasOffered:
        settle(id, .cancelled, &outputs)
      default:
        outgoing[id]?.state = .queued
        outgoing[id]?.nextPage = nil
        insertInQueue(id, delivery.number)
      }
    }
  }

  /// Which one in the queue has its turn. A reply, for which its receiver may wait and has room, and what is only offered to
  /// be cancelled do not wait until the receiver has room for more.
  private var nextIndex: Int? {
    guard offeredCount < limits.sentCountMax, !queue.isEmpty else { return nil }
    if offeredCount < offeredCountMax { return 0 }
    return queue.firstIndex { id in outgoing[id].map { $0.isReply || $0.isCancelled } ?? false }
  }

  /// Lets the owner load what may be offered over the channel.
  mutating func flush(
    over number: ChannelNumber, _ channel: DeliveryChannels.Channel,
    _ outputs: inout [DeliveryOutput]
  ) {
    while let index = nextIndex, let delivery = outgoing[queue[index]] {
      let id = queue.remove(at: index)
      if channel.attachmentCountMax > 0, delivery.fileCount > channel.attachmentCountMax,
        !delivery.wasOffered
      {
        settle(id, .refused(.limitExceeded(DeliveryLimits.attachmentCountName)), &outputs)
        continue
      }
      offeredCount += 1
      outgoing[id]?.state = .loading(number)
      outputs.append(.wantsOffer(id))
    }
  }

  /// By number: those that are offered again come before those that were not offered yet.
  private mutating func insertInQueue(_ id: Identifier, _ number: UInt64) {
    var low = 0
    var high = queue.count
    while low < high {
      let middle = (low + high) / 2
      if outgoing[queue[middle]]?.number ?? 0 < number { low = middle + 1 } else { high = middle }
    }
    queue.insert(id, at: low)
  }
}
