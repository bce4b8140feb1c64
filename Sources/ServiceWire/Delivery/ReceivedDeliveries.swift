import Foundation
import ServiceValues
import SodiumPrimitives

/// Deliveries of the peer's that are under way, and those that were answered for good while the peer may not have heard of it: the
/// receiver's half of ``Deliveries``.
struct ReceivedDeliveries: Sendable {
  struct Incoming {
    enum State: Equatable {
      /// The owner has the offer.
      case offered
      /// It is offered, and waits for the app or its container, which the sender was told.
      case held
      /// A page was asked for.
      case paging(from: UInt64)
      /// The owner has the whole manifest.
      case listed
      case receiving
      case committing
      /// The owner discards it.
      case withdrawn
    }

    let fileCount: UInt64
    let byteCount: UInt64
    var state: State = .offered
    /// Why it waits, or has waited: what the sender was told last.
    var toldReason: WireDeliveryWaiting.Reason?
    /// Nil when that went: while the owner commits or discards it.
    var channel: ChannelNumber?
    /// While it is received.
    var stream: UInt32?
    /// The position up to which the contents are kept.
    var received: UInt64 = 0
    /// Frames of the stream that had come when the sender was told last.
    var toldFrameCount: UInt64 = 0
    var hasAskedAgain = false
    /// The owner of one that is committed hears of it afterwards.
    var isCancelled = false
    /// It was offered over other channels too. The sender has closed all but one of them, and which one only their ends tell.
    var waiting: [WaitingOffer] = []

    /// Where the sender waits for an answer.
    var channels: [ChannelNumber] { (channel.map { [$0] } ?? []) + waiting.map(\.channel) }
  }

  struct WaitingOffer {
    let channel: ChannelNumber
    let offer: WireOffer
    var isWithdrawn = false
    var isCancelled = false
  }

  struct Ended {
    let id: Identifier
    let wasCommitted: Bool
    /// Its number was taken: it may be offered again under another incarnation.
    var mayComeAgain = false
  }

  /// The receiver's end of a channel.
  struct End {
    /// The last number that was given to a stream.
    var lastStream: UInt32 = 0
    /// The last deliveries that were answered for good: what the peer sent before it read the answer may still come.
    var ended: [Ended] = []
  }

  private let limits: DeliveryLimits
  private(set) var incoming: [Identifier: Incoming] = [:]
  private(set) var ends: [ChannelNumber: End] = [:]

  init(limits: DeliveryLimits) { self.limits = limits }

  var count: Int { incoming.count }
  var isEmpty: Bool { incoming.isEmpty }
  /// There is one that does not wait until this app runs.
  var isMoving: Bool {
    incoming.values.contains { $0.state != .held }
  }

  // MARK: What its owner says

  func refusal(of offer: WireOffer) -> WireFailure? {
    if limits.attachmentCountMax > 0, offer.fileCount > limits.attachmentCountMax {
      return .limitExceeded(DeliveryLimits.attachmentCountName)
    }
    if limits.attachmentByteCountMax > 0, offer.byteCount > limits.attachmentByteCountMax {
      return .limitExceeded(DeliveryLimits.attachmentByteCountName)
    }
    return nil
  }

  func channel(of id: Identifier) -> ChannelNumber? { incoming[id]?.channel }

  mutating func wantPages(_ id: Identifier, from: UInt64, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = incoming[id], delivery.state == .offered, let number = delivery.channel
    else {
      return
    }
    precondition(from < delivery.fileCount, "there is no page behind the last file")
    wantPage(id, from, number, &outputs)
  }

  private mutating func wantPage(
    _ id: Identifier, _ from: UInt64, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) {
    incoming[id]?.state = .paging(from: from)
    outputs.append(
      .send(
        .with {
          $0.manifestWanted = .with {
            $0.id = id.data
            $0.from = from
          }
        }, on: number))
  }

  /// Throws what closes the channel.
  mutating func accept(
    _ id: Identifier, from: UInt64, key: Data, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    guard let delivery = incoming[id], delivery.state == .offered || delivery.state == .listed
    else { return }
    try accept(id, from: from, key: key, damaged: nil, &outputs)
  }

  /// Throws what closes the channel.
  mutating func askAgain(
    _ id: Identifier, from: UInt64, damaged: UInt64, key: Data, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    guard let delivery = incoming[id], delivery.state == .receiving, delivery.channel != nil else {
      return
    }
    guard !delivery.hasAskedAgain else {
      throw ProtocolViolation(
        fault: .streamDamaged, detail: "a segment at byte \(damaged) does not open")
    }
    incoming[id]?.hasAskedAgain = true
    endExpecting(id, &outputs)
    try accept(id, from: from, key: key, damaged: damaged, &outputs)
  }

  private mutating func accept(
    _ id: Identifier, from: UInt64, key: Data, damaged: UInt64?, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    guard let delivery = incoming[id], let number = delivery.channel, let end = ends[number] else {
      return
    }
    precondition(from <= delivery.byteCount, "more than there is")
    var message = WireDeliveryAccepted.with {
      $0.id = id.data
      $0.resumeFrom = from
      $0.damaged = damaged.map { $0 + 1 } ?? 0
    }
    incoming[id]?.state = .receiving
    incoming[id]?.received = from
    incoming[id]?.toldFrameCount = 0
    if from < delivery.byteCount {
      precondition(key.count == DeliveryLimits.keyByteCount, "a stream has a key")
      guard end.lastStream < .max else {
        throw ProtocolViolation(fault: .noError, detail: "no number for another stream")
      }
      message.stream = end.lastStream + 1
      message.key = key
      message.credit = limits.creditFrameCount
      ends[number]?.lastStream = message.stream
      incoming[id]?.stream = message.stream
      outputs.append(.expect(id, on: number, stream: message.stream, key: key))
    }
    outputs.append(.send(.with { $0.deliveryAccepted = message }, on: number))
  }

  func putBack(_ id: Identifier, count: UInt64, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = incoming[id], delivery.state == .offered, delivery.toldReason == nil,
      let number = delivery.channel
    else {
      return
    }
    outputs.append(
      .send(
        .with {
          $0.putBack = .with {
            $0.id = id.data
            $0.count = count
          }
        }, on: number))
  }

  mutating func hold(
    _ id: Identifier, for reason: WireDeliveryWaiting.Reason, _ outputs: inout [DeliveryOutput]
  ) {
    guard let delivery = incoming[id], let number = delivery.channel else { return }
    guard delivery.state == .offered || delivery.state == .held else { return }
    incoming[id]?.state = .held
    guard delivery.toldReason != reason else { return }
    incoming[id]?.toldReason = reason
    outputs.append(
      .send(
        .with {
          $0.deliveryWaiting = .with {
            $0.id = id.data
            $0.reason = reason
          }
        }, on: number))
  }

  mutating func release(_ id: Identifier) {
    guard incoming[id]?.state == .held else { return }
    incoming[id]?.state = .offered
  }

  mutating func refuse(
    _ id: Identifier, _ failure: WireFailure, generation: UInt64, _ outputs: inout [DeliveryOutput]
  ) {
    guard let delivery = incoming[id], delivery.state != .withdrawn else { return }
    endExpecting(id, &outputs)
    let message = WireChannelMessage.with {
      $0.deliveryRefused = .with {
        $0.id = id.data
        $0.failure = failure.sendable
        $0.generation = generation
      }
    }
    incoming[id] = nil
    let isNumberTaken = failure.error == UInt32(ServicesError.numberTaken.rawValue)
    for number in delivery.channels {
      end(id, message, on: number, mayComeAgain: isNumberTaken, &outputs)
    }
  }

  /// Forgets a delivery, and returns the channels over which it was offered.
  mutating func leaveOpen(_ id: Identifier, _ outputs: inout [DeliveryOutput]) -> [ChannelNumber] {
    endExpecting(id, &outputs)
    return incoming.removeValue(forKey: id)?.channels ?? []
  }

  mutating func received(
    _ id: Identifier, _ total: UInt64, frameCount: UInt64, _ channels: inout DeliveryChannels,
    _ outputs: inout [DeliveryOutput]
  ) {
    guard let delivery = incoming[id], delivery.state == .receiving, delivery.stream != nil,
      let number = delivery.channel, total >= delivery.received
    else { return }
    precondition(total <= delivery.byteCount, "more than there is")
    incoming[id]?.received = total
    channels.served(number)
    // Well before the sender has to wait.
    let step = max(1, min(limits.progressFrameCount, limits.creditFrameCount / 2))
    guard frameCount >= delivery.toldFrameCount + step else { return }
    incoming[id]?.toldFrameCount = frameCount
    outputs.append(
      .send(
        .with {
          $0.deliveryProgress = .with {
            $0.id = id.data
            $0.received = total
            $0.credit = frameCount + limits.creditFrameCount
          }
        }, on: number))
  }

  mutating func beginCommit(_ id: Identifier) -> Bool {
    guard incoming[id]?.state == .receiving else { return false }
    incoming[id]?.state = .committing
    incoming[id]?.stream = nil
    return true
  }

  mutating func committed(
    _ id: Identifier, count: UInt64, _ channels: inout DeliveryChannels,
    _ outputs: inout [DeliveryOutput]
  ) {
    guard let delivery = incoming[id] else { return }
    endExpecting(id, &outputs)
    let isCancelled = delivery.isCancelled || delivery.waiting.contains { $0.isCancelled }
    incoming[id] = nil
    for number in delivery.channels {
      channels.served(number)
      let answer = WireChannelMessage.with {
        $0.committed = .with {
          $0.id = id.data
          // Another offer may be under another incarnation.
          $0.count = number == delivery.channel ? count : 0
        }
      }
      end(id, answer, on: number, wasCommitted: !isCancelled, &outputs)
    }
    if isCancelled { outputs.append(.resultUnwanted(id)) }
  }

  mutating func discarded(_ id: Identifier, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = incoming[id], delivery.state == .withdrawn else { return }
    incoming[id] = nil
    for number in [delivery.channel] + delivery.waiting.map({ $0.isWithdrawn ? $0.channel : nil }) {
      guard let number else { continue }
      end(id, .with { $0.deliveryCancelled.id = id.data }, on: number, &outputs)
    }
    begin(id, delivery.waiting.filter { !$0.isWithdrawn }, &outputs)
  }

  // MARK: The end

  private mutating func endExpecting(_ id: Identifier, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = incoming[id], let stream = delivery.stream, let number = delivery.channel
    else {
      return
    }
    incoming[id]?.stream = nil
    outputs.append(.endExpecting(id, on: number, stream: stream))
  }

  /// Answers an offer for good. No more than the peer had under way can be under way when it hears of this one.
  private mutating func end(
    _ id: Identifier, _ answer: WireChannelMessage, on number: ChannelNumber,
    wasCommitted: Bool = false,
    mayComeAgain: Bool = false, _ outputs: inout [DeliveryOutput]
  ) {
    ends[number]?.ended.append(
      Ended(id: id, wasCommitted: wasCommitted, mayComeAgain: mayComeAgain))
    if ends[number]?.ended.count ?? 0 > limits.receivedCountMax {
      ends[number]?.ended.removeFirst()
    }
    outputs.append(.send(answer, on: number))
  }

  /// Goes on with the last of the offers of one delivery; the others wait for what becomes of it.
  private mutating func begin(
    _ id: Identifier, _ offers: [WaitingOffer], _ outputs: inout [DeliveryOutput]
  ) {
    guard let next = offers.last else { return }
    incoming[id] = Incoming(
      fileCount: next.offer.fileCount, byteCount: next.offer.byteCount, channel: next.channel,
      waiting: offers.dropLast())
    outputs.append(.offered(next.offer))
    guard next.isWithdrawn else { return }
    incoming[id]?.state = .withdrawn
    incoming[id]?.isCancelled = next.isCancelled
    outputs.append(.withdrawn(id))
  }

  /// Its channel is gone.
  private mutating func interrupt(_ id: Identifier, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = incoming[id] else { return }
    switch delivery.state {
    case .offered, .held, .paging, .listed, .receiving:
      endExpecting(id, &outputs)
      incoming[id] = nil
      outputs.append(.interrupted(id))
      begin(id, delivery.waiting, &outputs)
    case .committing, .withdrawn: incoming[id]?.channel = nil
    }
  }

  // MARK: What the sender says

  mutating func take(
    _ offer: WireOffer, isOurs: Bool, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try check(offer)
    // An id is of one direction only.
    guard !isOurs, incoming[id]?.channels.contains(number) != true,
      ends[number]?.ended.contains(where: { $0.id == id && !$0.mayComeAgain }) == false
    else { throw ProtocolViolation(fault: .unexpectedMessage) }
    guard incoming.values.count(where: { $0.channels.contains(number) }) < limits.receivedCountMax
    else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "deliveries under way")
    }
    ends[number]?.ended.removeAll { $0.id == id }
    guard incoming[id] != nil else {
      return begin(id, [WaitingOffer(channel: number, offer: offer)], &outputs)
    }
    // The owner has none of those that wait, and counts none of them.
    let waiting = incoming.values.reduce(offer.encodedByteCount) { sum, delivery in
      delivery.waiting.reduce(sum) { $0 + $1.offer.encodedByteCount }
    }
    guard waiting <= limits.waitingOfferByteCountMax else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "bytes of offers that wait")
    }
    // Its files are asked for when its turn comes.
    var waitingOffer = offer
    waitingOffer.files = []
    incoming[id]?.waiting.append(WaitingOffer(channel: number, offer: waitingOffer))
  }

  private func check(_ offer: WireOffer) throws(ProtocolViolation) -> Identifier {
    let id = try Identifier(wire: offer.id)
    try offer.incarnation.check()
    guard WireIncarnation.numbers.contains(offer.number),
      offer.delivered < WireIncarnation.numbers.upperBound, offer.floor <= offer.number,
      offer.byteCount <= DeliveryLimits.byteCountMax, offer.byteCount == 0 || offer.fileCount > 0,
      offer.storedByteCount <= DeliveryLimits.byteCountMax,
      offer.storedByteCount == 0 || offer.byteCount > 0,
      offer.files.count <= limits.pageFileCountMax,
      offer.files.reduce(0, { $0 + $1.encodedByteCount }) <= limits.pageByteCountMax,
      Self.areRight(offer.files, atMost: offer.fileCount, of: offer.byteCount)
    else { throw ProtocolViolation(fault: .malformed) }
    switch offer.message {
    case .request(let request):
      guard request.id == offer.id, request.attachments == offer.fileCount else {
        throw ProtocolViolation(fault: .malformed)
      }
      try request.check()
    case .reply(let reply):
      _ = try Identifier(wire: reply.id)
      guard reply.attachments == offer.fileCount else { throw ProtocolViolation(fault: .malformed) }
      try reply.check()
    case nil: throw ProtocolViolation(fault: .malformed)
    }
    return id
  }

  /// What the sender says of one that it offered here. Nil when it was answered for good meanwhile.
  private func delivery(_ id: Identifier, _ number: ChannelNumber) throws(ProtocolViolation)
    -> Incoming?
  {
    if let delivery = incoming[id], delivery.channel == number { return delivery }
    guard ends[number]?.ended.contains(where: { $0.id == id }) == true else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    return nil
  }

  mutating func take(
    _ page: WireManifestPage, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: page.id)
    guard !page.files.isEmpty, page.files.count <= limits.pageFileCountMax,
      (try? page.serializedBytes() as [UInt8])?.count ?? .max <= limits.pageByteCountMax
    else { throw ProtocolViolation(fault: .malformed) }
    guard let delivery = try delivery(id, number), delivery.state != .withdrawn else { return }
    guard case .paging(let from) = delivery.state, page.from == from else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard Self.areRight(page.files, atMost: delivery.fileCount - from, of: delivery.byteCount) else {
      throw ProtocolViolation(fault: .malformed)
    }
    outputs.append(.page(id, page.files))
    let next = from + UInt64(page.files.count)
    if next < delivery.fileCount {
      wantPage(id, next, number, &outputs)
    } else {
      incoming[id]?.state = .listed
    }
  }

  private static func areRight(
    _ files: [WireOfferedFile], atMost fileCount: UInt64, of byteCount: UInt64
  ) -> Bool {
    UInt64(files.count) <= fileCount && files.allSatisfy { isRight($0, of: byteCount) }
  }

  private static func isRight(_ file: WireOfferedFile, of byteCount: UInt64) -> Bool {
    guard file.byteCount <= byteCount, file.permissions <= DeliveryLimits.permissionsMax,
      file.path.first == UInt8(ascii: "/"), !file.path.contains(0)
    else { return false }
    return file.path.dropFirst().split(
      separator: UInt8(ascii: "/"), omittingEmptySubsequences: false
    )
    .allSatisfy { (1...DeliveryLimits.nameByteCountMax).contains($0.count) }
  }

  mutating func takeWithdrawal(
    _ id: Identifier, isCancel: Bool, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    if let i = incoming[id]?.waiting.firstIndex(where: { $0.channel == number }) {
      guard incoming[id]?.waiting[i].isWithdrawn == false else {
        throw ProtocolViolation(fault: .unexpectedMessage)
      }
      incoming[id]?.waiting[i].isWithdrawn = true
      incoming[id]?.waiting[i].isCancelled = isCancel
      return
    }
    guard let delivery = try delivery(id, number) else {
      // They crossed.
      guard isCancel,
        ends[number]?.ended.contains(where: { $0.id == id && $0.wasCommitted }) == true
      else { return }
      // Once, over whatever channels it was offered.
      for number in ends.keys {
        guard let i = ends[number]?.ended.firstIndex(where: { $0.id == id }) else { continue }
        ends[number]?.ended[i] = Ended(id: id, wasCommitted: false)
      }
      return outputs.append(.resultUnwanted(id))
    }
    switch delivery.state {
    case .offered, .held, .paging, .listed, .receiving:
      endExpecting(id, &outputs)
      incoming[id]?.state = .withdrawn
      incoming[id]?.isCancelled = isCancel
      outputs.append(.withdrawn(id))
    case .committing:
      // A sender that has sent everything cannot fail any more.
      guard isCancel, !delivery.isCancelled else {
        throw ProtocolViolation(fault: .unexpectedMessage)
      }
      incoming[id]?.isCancelled = true
    case .withdrawn: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }

  // MARK: Channels

  mutating func channelOpened(_ number: ChannelNumber) { ends[number] = End() }

  mutating func channelClosed(_ number: ChannelNumber, _ outputs: inout [DeliveryOutput]) {
    ends[number] = nil
    for (id, delivery) in incoming.sorted(by: { $0.key < $1.key })
    where delivery.channels.contains(number) {
      incoming[id]?.waiting.removeAll { $0.channel == number }
      if delivery.channel == number { interrupt(id, &outputs) }
    }
  }
}
