import ServiceValues
import ServiceWire

/// Tells the app of messages of one other app before they are there, each once.
struct ArrivalNews {
  unowned let peer: PeerSession

  func tellBeginning(of delivery: IncomingDelivery) {
    if delivery.offer.fileCount > 0, delivery.tellCount() {
      tellCount(Int(clamping: delivery.offer.fileCount), of: delivery)
    }
    tellArrival(delivery, waitsFor: nil)
  }

  private func tellCount(_ count: Int, of delivery: IncomingDelivery) {
    let offer = delivery.offer
    guard let id = offer.requestID else { return }
    switch offer.message {
    case .reply:
      peer.outbox.afterDelivery(of: id) { $0.sent[id]?.tell(.willReceiveAttachments(count: count)) }
    case .request(let request):
      guard let provider = peer.core.services.offer(of: request)?.provider else { return }
      peer.inbox.charges.callBack(holding: OfferCharges.listedFileByteCount) {
        [application = peer.application] in
        if delivery.isUnwanted { return }
        provider.willReceive(attachmentCount: count, for: id, from: application)
      }
    case nil: break
    }
  }

  /// Its first offer begins to arrive, or waits until the app runs; or this has changed.
  func tellArrival(_ delivery: IncomingDelivery, waitsFor reason: WireDeliveryWaiting.Reason?) {
    let offer = delivery.offer
    let reason = reason.flatMap { IncomingTransfer.WaitReason($0) }
    defer { peer.core.messagesChanged() }
    if let transfer = delivery.transfer { return transfer.setWaits(for: reason) }
    guard offer.fileCount > 0, let request = offer.requestID else { return }
    let transfer = IncomingTransfer(
      request, isReply: offer.isReply, from: peer.application, fileCount: offer.fileCount,
      byteCount: offer.byteCount, peer.runtime)
    transfer.setWaits(for: reason)
    delivery.transfer = transfer
    peer.core.arrivalWatchers.yield(transfer)
  }

  func tell(_ files: [ArrivedFile], of delivery: IncomingDelivery) {
    let offer = delivery.offer
    guard !files.isEmpty, let id = offer.requestID else { return }
    delivery.transfer?.began(files)
    switch offer.message {
    case .reply:
      peer.outbox.afterDelivery(of: id) { peer in
        for file in files {
          peer.sent[id]?.tell(.willReceive(attachment: file.path, byteCount: file.byteCount))
        }
      }
    case .request(let request):
      guard let provider = peer.core.services.offer(of: request)?.provider else { return }
      let byteCount = OfferCharges.listedByteCount(files.lazy.map(\.path.utf8.count))
      peer.inbox.charges.callBack(holding: byteCount) { [application = peer.application] in
        for file in files where !delivery.isUnwanted {
          provider.willReceive(
            attachment: file.path, byteCount: file.byteCount, for: id, from: application)
        }
      }
    case nil: break
    }
  }
}
