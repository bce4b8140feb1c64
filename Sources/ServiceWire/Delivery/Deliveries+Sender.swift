import Foundation
import ServiceValues
package import SodiumPrimitives

extension Deliveries {
  // MARK: What the sender's owner says

  /// A message is in the outbox. `number` is its number there; `wasOffered` when an earlier process may have offered it, so that only the
  /// receiver knows whether it has it. Nothing for an id that is known already.
  package mutating func enqueue(
    _ id: Identifier, number: UInt64, fileCount: UInt64, byteCount: UInt64, wasOffered: Bool = false
  ) -> [DeliveryOutput] {
    guard outgoing[id] == nil else { return [] }
    outgoing[id] = Outgoing(
      number: number, fileCount: fileCount, byteCount: byteCount, wasOffered: wasOffered)
    insertInQueue(id, number)
    var outputs = retry()
    flush(&outputs)
    return outputs
  }

  /// Answers `wantsOffer`; nothing when it was cancelled or its channel went meanwhile. What it says of itself is taken from
  /// ``enqueue(_:number:fileCount:byteCount:wasOffered:)``.
  package mutating func offer(_ offer: WireOffer) -> [DeliveryOutput] {
    guard let id = Identifier(exactly: offer.id), let delivery = outgoing[id],
      case .loading(let number) = delivery.state,
      let channel = channels[number]
    else { return [] }
    var offer = offer
    offer.number = delivery.number
    offer.fileCount = delivery.fileCount
    offer.byteCount = delivery.byteCount
    switch offer.message {
    case .request: offer.request.attachments = delivery.fileCount
    case .reply: offer.reply.attachments = delivery.fileCount
    case nil: break
    }
    var outputs: [DeliveryOutput] = []
    let message = WireChannelMessage.with { $0.offer = offer }
    guard message.encodedByteCount <= channel.frameByteCountMax else {
      offeredCount -= 1
      settle(id, .refused(.frameLimit), &outputs)
      flush(&outputs)
      return outputs
    }
    outgoing[id]?.wasOffered = true
    outgoing[id]?.wasAskedAgain = false
    outgoing[id]?.incarnation = offer.incarnation
    outgoing[id]?.delivered = offer.delivered
    outgoing[id]?.state = .offered(number)
    outputs.append(.send(message, on: number))
    if delivery.isCancelled { sendCancel(id, on: number, &outputs) }
    return outputs
  }

  /// Answers `wantsPage` with the next files: as many of them as fit in a page are sent. Nothing when it is not wanted any more.
  package mutating func page(_ id: Identifier, from: UInt64, _ files: [WireOfferedFile]) -> [DeliveryOutput] {
    guard let delivery = outgoing[id], case .paging(let number, from) = delivery.state,
      let channel = channels[number]
    else { return [] }
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
          ? .with { $0.error = 23 } : Self.failure(.limitExceeded, DeliveryLimits.pageName))
    }
    outgoing[id]?.nextPage = from + UInt64(page.files.count)
    outgoing[id]?.state = .offered(number)
    return [.send(.with { $0.manifestPage = page }, on: number)]
  }

  /// Bytes at most of a page without its files, of what stands before one file, and before a page in its frame.
  private static let pageByteCount = 2 + Identifier.byteCount + 11
  private static let fileByteCount = 6
  private static let pageFrameByteCount = 16

  /// Whether a failure would end it: nothing ends one that has ended, and of one that is being cancelled the receiver's answer decides.
  package func canFail(_ id: Identifier) -> Bool {
    switch outgoing[id]?.state {
    case nil, .failed, .cancelling: false
    case .queued, .loading, .offered, .paging, .accepted: true
    }
  }

  /// What the receiver wants cannot be read: the delivery has ended with that failure. Does nothing unless it can fail.
  package mutating func fail(_ id: Identifier, _ failure: WireFailure) -> [DeliveryOutput] {
    guard canFail(id), let delivery = outgoing[id] else { return [] }
    var outputs: [DeliveryOutput] = []
    switch delivery.state {
    case .failed, .cancelling: break
    case .queued:
      queue.removeAll { $0 == id }
      settle(id, .refused(failure), &outputs)
    case .loading:
      offeredCount -= 1
      settle(id, .refused(failure), &outputs)
    case .offered(let number), .paging(let number, _), .accepted(let number):
      endStream(id, &outputs)
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
    flush(&outputs)
    return outputs
  }

  /// The app does not want it delivered any more. One that was never offered has ended; of any other the receiver's answer decides, over the
  /// next channel when there is none.
  package mutating func cancel(_ id: Identifier) -> [DeliveryOutput] {
    guard let delivery = outgoing[id], !delivery.isCancelled else { return [] }
    var outputs: [DeliveryOutput] = []
    switch delivery.state {
    case .failed, .cancelling: return []
    case .queued where !delivery.wasOffered:
      queue.removeAll { $0 == id }
      settle(id, .cancelled, &outputs)
    case .loading where !delivery.wasOffered:
      offeredCount -= 1
      settle(id, .cancelled, &outputs)
    case .queued, .loading:
      outgoing[id]?.isCancelled = true
      outputs += retry()
    case .offered(let number), .paging(let number, _), .accepted(let number):
      outgoing[id]?.isCancelled = true
      sendCancel(id, on: number, &outputs)
    }
    flush(&outputs)
    return outputs
  }

  private mutating func sendCancel(
    _ id: Identifier, on number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) {
    endStream(id, &outputs)
    outgoing[id]?.state = .cancelling(number)
    outputs.append(.send(.with { $0.deliveryCancelled.id = id.data }, on: number))
  }

  /// Tells the receiver what it may forget, when there is a channel.
  package mutating func acknowledge(floor: UInt64, incarnation: WireIncarnation) -> [DeliveryOutput] {
    guard let number = newest else { return [] }
    return [
      .send(
        .with {
          $0.acknowledged = .with {
            $0.floor = floor
            $0.incarnation = incarnation
          }
        }, on: number)
    ]
  }

  // MARK: The end

  mutating func endStream(_ id: Identifier, _ outputs: inout [DeliveryOutput]) {
    guard let delivery = outgoing[id], let stream = delivery.stream, let number = delivery.state.channel
    else { return }
    outgoing[id]?.stream = nil
    outputs.append(.endStream(id, on: number, stream: stream.number))
  }

  mutating func settle(_ id: Identifier, _ end: SentDeliveryEnd, _ outputs: inout [DeliveryOutput]) {
    outgoing[id] = nil
    outputs.append(.settled(id, end))
  }

  // MARK: Receiving, as the sender

  /// What the receiver answers on the channel where it was offered.
  private func delivery(_ id: Identifier, _ number: ChannelNumber) throws(ProtocolViolation) -> Outgoing {
    guard let delivery = outgoing[id], delivery.state.channel == number, delivery.state != .loading(number)
    else { throw ProtocolViolation(fault: .unexpectedMessage) }
    return delivery
  }

  mutating func takeManifestWanted(
    _ message: WireManifestWanted, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let id = try Identifier(wire: message.id)
    let delivery = try delivery(id, number)
    guard message.from < delivery.fileCount else { throw ProtocolViolation(fault: .malformed) }
    switch delivery.state {
    case .offered where delivery.nextPage ?? message.from == message.from:
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
    case .offered where delivery.nextPage ?? delivery.fileCount == delivery.fileCount:
      guard message.damaged == 0 else { throw ProtocolViolation(fault: .malformed) }
    // Some of it did not open there.
    case .accepted where message.damaged > 0 && !delivery.wasAskedAgain:
      guard hasStream, message.damaged - 1 >= message.resumeFrom, message.damaged <= delivery.byteCount else {
        throw ProtocolViolation(fault: .malformed)
      }
    case .cancelling, .failed: break
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
    if hasStream {
      guard message.stream > channels[number]?.lastSentStream ?? 0 else {
        throw ProtocolViolation(fault: .malformed)
      }
      channels[number]?.lastSentStream = message.stream
    }
    switch delivery.state {
    case .offered, .accepted: break
    default: return
    }
    endStream(id, &outputs)
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
    _ message: WireDeliveryProgress, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
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
      channels[number]?.hasServed = true
      outgoing[id]?.received = message.received
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
    guard let delivered = delivery.delivered else { throw ProtocolViolation(fault: .unexpectedMessage) }
    guard message.count < delivered else { throw ProtocolViolation(fault: .malformed) }
    outgoing[id]?.delivered = nil
    outputs.append(.putBack(id, delivery.incarnation, count: message.count, delivered: delivered))
  }

  mutating func takeEnd(
    _ id: Identifier, _ end: SentDeliveryEnd, generation: UInt64 = 0, count: UInt64 = 0,
    _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    let delivery = try delivery(id, number)
    if case .refused(let failure) = end {
      try failure.check()
      // Nobody drives this app to the last generation.
      guard generation <= delivery.incarnation.generation + WireIncarnation.stepMax else {
        throw ProtocolViolation(fault: .malformed)
      }
    }
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
    offeredCount -= 1
    channels[number]?.hasServed = true
    if count > 0 { outputs.append(.delivered(id, delivery.incarnation, count: count)) }
    if case .refused(let failure) = end, failure.error == UInt32(ServicesError.numberTaken.rawValue),
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
}
