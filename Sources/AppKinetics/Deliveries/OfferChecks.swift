import ServiceValues
import ServiceWire

/// The checks of a message of one other app, before anything of it is copied and once more before it is committed.
struct OfferChecks {
  unowned let peer: PeerSession

  func require(
    _ delivery: IncomingDelivery, _ params: ReadValues.Value, among others: some Sequence<IncomingDelivery>
  ) throws(ServicesError) {
    let offer = delivery.offer
    switch offer.message {
    case .request(let request): try require(request, params, fileCount: offer.fileCount)
    case .reply: try requireReply(delivery, among: others)
    case nil: throw ServicesError(.invalidParams, detail: "an offer of nothing")
    }
  }

  /// Much may have changed since the offer.
  func requireStill(
    _ delivery: IncomingDelivery, among others: some Sequence<IncomingDelivery>
  ) throws(ServicesError) {
    guard !delivery.isReply else { return try requireReply(delivery, among: others) }
    guard !peer.core.services.denies(peer) else { throw ServicesError(.notAllowed) }
  }

  /// The checks of the page.
  private func require(
    _ request: WireRequest, _ params: ReadValues.Value, fileCount: UInt64
  ) throws(ServicesError) {
    let found = try peer.core.services.offer(of: request, from: peer)
    let params = try params.get()
    if found.validates {
      try found.definition.validate(
        request: request.method, params: params, attachmentCount: Int(clamping: fileCount))
    }
  }

  /// One delivery brings the reply to a request, and what nobody awaits is stored for nobody without end.
  private func requireReply(
    _ delivery: IncomingDelivery, among others: some Sequence<IncomingDelivery>
  ) throws(ServicesError) {
    guard !others.contains(where: { $0.comesBefore(delivery) }) else {
      throw ServicesError(.limitExceeded, detail: "another reply to the request is under way")
    }
    guard !isAwaitedReply(delivery), !peer.core.messages.mayStoreReply(of: peer.application) else { return }
    throw ServicesError(.limitExceeded, detail: "replies of one app that nobody has taken")
  }

  func isAwaitedReply(_ delivery: IncomingDelivery) -> Bool {
    delivery.isReply && delivery.request.map { peer.sent[$0] != nil } ?? false
  }
}
