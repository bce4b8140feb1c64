import Foundation
import SodiumPrimitives

extension Deliveries {
  /// A message came over a channel, one for which ``isDelivery(_:)`` is true. Nothing for a channel that is not known.
  package mutating func receive(_ message: WireChannelMessage, on number: ChannelNumber) -> [DeliveryOutput] {
    // What the other side sent after a fault is nothing any more.
    guard channels[number] != nil else { return [] }
    var outputs: [DeliveryOutput] = []
    do throws(ProtocolViolation) {
      try take(message, number, &outputs)
      flush(&outputs)
    } catch {
      outputs += close(number, error.fault, detail: error.detail)
    }
    return outputs
  }

  private mutating func take(
    _ message: WireChannelMessage, _ number: ChannelNumber, _ outputs: inout [DeliveryOutput]
  ) throws(ProtocolViolation) {
    guard let kind = message.kind else { throw ProtocolViolation(fault: .malformed) }
    switch kind {
    // From the sender of a delivery.
    case .offer(let offer): try take(offer, number, &outputs)
    case .manifestPage(let page): try take(page, number, &outputs)
    case .deliveryFailed(let message):
      try message.failure.check()
      try takeWithdrawal(Identifier(wire: message.id), isCancel: false, number, &outputs)
    case .acknowledged(let message):
      try message.incarnation.check()
      outputs.append(.acknowledged(floor: message.floor, incarnation: message.incarnation))
    // From its receiver.
    case .manifestWanted(let message): try takeManifestWanted(message, number, &outputs)
    case .deliveryAccepted(let message): try takeAccepted(message, number, &outputs)
    case .deliveryProgress(let message): try takeProgress(message, number, &outputs)
    case .committed(let message):
      try takeEnd(Identifier(wire: message.id), .committed, count: message.count, number, &outputs)
    case .putBack(let message): try takePutBack(message, number, &outputs)
    case .deliveryRefused(let message):
      try takeEnd(
        Identifier(wire: message.id), .refused(message.failure), generation: message.generation, number,
        &outputs)
    // From either: an id is of one direction only.
    case .deliveryCancelled(let message):
      let id = try Identifier(wire: message.id)
      if outgoing[id] != nil {
        try takeEnd(id, .cancelled, number, &outputs)
      } else {
        try takeWithdrawal(id, isCancel: true, number, &outputs)
      }
    // About replies.
    case .replyInquiry(let message):
      let id = try Identifier(wire: message.id)
      guard channels[number]?.asked.contains(id) == false else {
        throw ProtocolViolation(fault: .unexpectedMessage)
      }
      guard channels[number]?.asked.count ?? 0 < limits.inquiryCountMax else {
        throw ProtocolViolation(fault: .limitExceeded, detail: "questions about replies")
      }
      channels[number]?.asked.insert(id)
      outputs.append(.inquired(request: id))
    case .replyStanding(let message):
      let id = try Identifier(wire: message.id)
      guard inquiries[id] == .asked(number) else { throw ProtocolViolation(fault: .unexpectedMessage) }
      inquiries[id] = nil
      channels[number]?.inquiryCount -= 1
      outputs.append(.standing(request: id, isAwaited: message.isAwaited))
    case .requestEnded(let message): outputs.append(.requestEnded(try Identifier(wire: message.id)))
    default: throw ProtocolViolation(fault: .unexpectedMessage)
    }
  }
}
