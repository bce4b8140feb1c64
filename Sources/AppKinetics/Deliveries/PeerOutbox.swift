import ContainerStore
import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files for one other app: in the outbox of the container first, so that they outlive the process.
final class PeerOutbox {
  private unowned let peer: PeerSession
  /// By delivery.
  private(set) var outgoing: [Identifier: OutgoingDelivery] = [:]
  /// When those that have a time limit are taken back, unless the app has done that.
  private var timeLimits: [Identifier: Date] = [:]
  /// The numbers of the outbox that were for this app are all below.
  private var end: UInt64 = 0
  /// Numbers below it that were for this app are settled, on the disk: no crash brings one back to be offered again.
  private var durableFloor: UInt64 = 0
  /// The last receipt that the receiver contradicted, because it was put back: the app was told.
  private var contradicted: DeliveryReceipt?
  /// The last incarnation under which the receiver could not take a number: the app was told.
  private var taken: WireIncarnation?
  /// Messages whose offers are being made.
  private var unmade: Set<Identifier> = []
  /// An acknowledgement waits for the disk, and one more message was settled since.
  private var isAcknowledging = false
  private var isAcknowledgementDue = false

  init(_ peer: PeerSession) { self.peer = peer }

  private var runtime: Runtime { peer.runtime }

  var isIdle: Bool { outgoing.isEmpty }

  /// The memory for replies that the other app has not taken. It decides how many there are.
  private(set) var waitingReplyByteCount = 0
  /// The memory for one of them; all else of it is on the disk only.
  private static let waitingReplyByteCount = 16 << 10

  private func chargeReply(_ sign: Int) {
    waitingReplyByteCount += sign * Self.waitingReplyByteCount
    peer.updateCharge()
  }

  func stop() {
    for delivery in outgoing.values { for body in delivery.whenEnded { body(nil) } }
    outgoing = [:]
  }

  // MARK: What is to be delivered

  /// `offer` is what ``offer(_:_:to:notUnder:in:)`` has made, if anything: it goes without a change of thread when its turn is now.
  /// `timeLimit` is in milliseconds.
  func enqueue(
    _ entry: OutboxEntry, request: Identifier?, isReply: Bool, meter: TransferMeter? = nil,
    offer: WireOffer? = nil, wasOffered: Bool = false, timeLimit: UInt64? = nil
  ) {
    let id = entry.id
    timeLimits[id] = timeLimit.map { entry.date + Double($0) / 1e3 }
    let files = OutgoingFiles(runtime.container.store, entry) {
      [runtime = runtime, application = peer.application] path in
      runtime.perform(with: application) { $0.outbox.tellStarted(path, id) }
    }
    outgoing[id] = OutgoingDelivery(
      entry: entry, request: request, isReply: isReply, files: files, meter: meter, offer: offer)
    if wasOffered { outgoing[id]?.offerCount = 1 }
    if isReply { chargeReply(1) }
    meter?.begin(byteCount: entry.byteCount, fileCount: entry.fileCount)
    end = max(end, entry.number + 1)
    peer.deliveries.step {
      $0.enqueue(
        id, number: entry.number, fileCount: entry.fileCount, byteCount: entry.byteCount, isReply: isReply,
        wasOffered: wasOffered)
    }
    // Else it waits for its turn, and much may change until then.
    outgoing[id]?.offer = nil
  }

  /// Calls back with its end; with nil for what is not on its way.
  func takeBack(_ id: Identifier, _ ended: [@Sendable (SentDeliveryEnd?) -> Void]) {
    guard outgoing[id] != nil else {
      for body in ended { body(nil) }
      return
    }
    outgoing[id]?.whenEnded += ended
    cancel(id)
  }

  /// The app does not want it delivered any more.
  func cancel(_ id: Identifier) {
    timeLimits[id] = nil
    peer.deliveries.step { $0.cancel(id) }
  }

  /// Takes back the reply to the request, if that is on its way.
  func cancelReply(to request: Identifier) {
    for (id, delivery) in outgoing where delivery.isReply && delivery.request == request { cancel(id) }
  }

  /// Takes back what has waited for longer than its time limit.
  func tick() {
    guard !timeLimits.isEmpty else { return }
    let now = runtime.date
    for (id, until) in timeLimits where now >= until {
      outgoing[id]?.failure = peer.deliveries.overdue
      cancel(id)
    }
  }

  /// The end of the next time limit, on the runtime's clock.
  var nextDeadline: UInt64? {
    timeLimits.values.min().map { until in
      let milliseconds = (until.timeIntervalSince(runtime.date) * 1e3).rounded(.up)
      return runtime.now + UInt64(min(max(milliseconds, 0), Self.longestWait))
    }
  }

  /// Milliseconds: the wall clock may be set meanwhile.
  private static let longestWait: Double = 60_000

  /// How far the messages are, by number, as far as their receivers have said.
  var states: [UInt64: OutboxMessage.State] {
    let waitReason = peer.deliveries.waitReason
    var states: [UInt64: OutboxMessage.State] = [:]
    for (id, delivery) in outgoing {
      if let own = peer.deliveries.waitReason(ofSent: id) {
        states[delivery.entry.number] = OutboxMessage.State(own)
      } else if delivery.wasAccepted, peer.isConnected || waitReason == nil {
        states[delivery.entry.number] = .underWay(bytesDone: delivery.bytesDone)
      } else if let waitReason {
        states[delivery.entry.number] = OutboxMessage.State(waitReason)
      }
    }
    return states
  }

  /// All of them, without params.
  func messages(isHeld: Bool) -> [OutboxMessage] {
    let states = states
    return outgoing.values.map { delivery in
      var message = OutboxMessage(unread: delivery, to: peer.application)
      message.state = states[delivery.entry.number] ?? (isHeld ? .held : .waiting)
      return message
    }
  }

  /// Counts the messages.
  func add(to way: inout WireTraffic.Way) {
    for (id, delivery) in outgoing {
      let moves =
        delivery.wasAccepted && peer.isConnected && peer.deliveries.waitReason(ofSent: id) == nil
      way.add(byteCount: delivery.entry.byteCount, bytesDone: delivery.bytesDone, waits: !moves)
    }
  }

  /// A reply to the request is on its way.
  func answers(_ request: Identifier) -> Bool {
    outgoing.values.contains { $0.isReply && $0.request == request }
  }

  /// There is no channel. What cannot be helped by waiting is taken back: everything, or what its sender still waits to hear of.
  func cannotReach(_ error: ServicesError, isFinal: Bool, endsNew: Bool) {
    for (id, delivery) in outgoing {
      let isNew = delivery.request.flatMap { peer.sent[$0] }?.isAccepted == false && !delivery.isReply
      guard isFinal || isNew && endsNew else {
        sent(of: id)?.accept()
        continue
      }
      outgoing[id]?.failure = error
      peer.deliveries.step { $0.cancel(id) }
    }
  }

  // MARK: What the state machine asks for

  func provideOffer(_ id: Identifier) {
    guard let delivery = outgoing[id] else { return }
    let (entry, taken, durableFloor) = (delivery.entry, delivery.taken, durableFloor)
    // Messages begin in their order.
    if var offer = delivery.offer, durableFloor > 0, unmade.isEmpty, offer.incarnation != self.taken {
      offer.floor = min(durableFloor, entry.number)
      return self.offer(id, .success(offer))
    }
    unmade.insert(id)
    let (application, container) = (peer.application, runtime.container)
    runtime.run(with: application) { () throws -> WireOffer in
      var floor = durableFloor
      // Both branches make durable which earlier messages were settled.
      if !entry.mayBeOffered || durableFloor == 0 {
        floor = try Self.floor(application, in: container) ?? entry.number
        if entry.mayBeOffered {
          try container.store.synchronize()
        } else {
          try container.store.markOffered(entry.number)
        }
      }
      let message = try WireOffer(serializedBytes: container.store.outboxMessage(entry.number))
      var offer = try Self.offer(message, entry, to: application, notUnder: taken, in: container)
      offer.floor = min(floor, entry.number)
      return offer
    } then: { peer, offer in
      peer.outbox.unmade.remove(id)
      peer.outbox.offer(id, offer)
    }
  }

  /// All of the offer of a message but its floor, as the container has it. Waits for the disk.
  static func offer(
    _ message: WireOffer, _ entry: OutboxEntry, to application: ApplicationID,
    notUnder taken: (incarnation: Incarnation, generation: UInt64)? = nil, in container: SecureContainer
  ) throws -> WireOffer {
    var offer = message
    offer.clearTimeLimit()
    offer.id = entry.id.data
    offer.storedByteCount = entry.storedByteCount
    if entry.fileCount <= DeliveryLimits.offeredFileCountMax {
      // An error in the list comes again when the receiver asks for it.
      offer.files = (try? files(of: entry.number, from: 0, in: container)) ?? []
    }
    let receiver = try container.store.outboxReceiver(
      application.text, notUnder: taken?.incarnation, generationAbove: taken?.generation ?? 0)
    offer.incarnation = WireIncarnation(receiver.incarnation)
    offer.delivered = receiver.delivered
    offer.mayBeRepeated = entry.number < receiver.firstNumber
    return offer
  }

  private func offer(_ id: Identifier, _ offer: Result<WireOffer, any Error>) {
    switch offer {
    case .success(var offer):
      FailPoint.offering.pass()
      // Only the process that has sent it passes the front on, and only from there.
      if !offer.isReply, offer.request.foreground == .peer {
        let isOwn = offer.requestID.map { peer.sent[$0] != nil } == true
        offer.request.passesFront = isOwn && peer.core.broker.isInFront
      }
      outgoing[id]?.entry.mayBeOffered = true
      outgoing[id]?.offerCount += 1
      durableFloor = max(offer.floor, durableFloor)
      peer.deliveries.step { $0.offer(offer) }
    case .failure(let error): fail(id, error)
    }
  }

  /// The least number for an app that is not settled; nil when all are. What the container says: a message that is on its way from there to
  /// the runtime's state counts.
  private static func floor(_ application: ApplicationID, in container: SecureContainer) throws -> UInt64? {
    try container.store.outboxFloor(receiver: application.text)
  }

  /// The receiver has seen other numbers of this container than those that it has drawn. The next offer draws another incarnation.
  func numberTaken(_ id: Identifier, _ wire: WireIncarnation, _ generation: UInt64) {
    guard let incarnation = Incarnation(wire) else { return }
    outgoing[id]?.taken = (incarnation, generation)
    // Every offer of that time is refused so.
    guard taken != wire else { return }
    if peer.tell(Rollback(side: .thisApp, application: peer.application, effect: .repeats)) { taken = wire }
  }

  /// The receiver was put back: it does not have what it said that it has.
  func putBack(_ wire: WireIncarnation, count: UInt64, delivered: UInt64) {
    guard let incarnation = Incarnation(wire) else { return }
    let (container, application, logger) = (runtime.container, peer.application, runtime.logger)
    runtime.fileQueue.async {
      do {
        let receipt = DeliveryReceipt(incarnation: incarnation, count: count)
        try container.store.setPutBack(application.text, has: receipt)
      } catch {
        logger.error("the outbox cannot be changed", metadata: ["error": "\(error)"])
      }
    }
    // Each offer of the same time says so.
    let claim = DeliveryReceipt(incarnation: incarnation, count: delivered)
    guard contradicted != claim else { return }
    let missing = Rollback(side: .otherApp, application: application, effect: .lacks(delivered - count))
    if peer.tell(missing) { contradicted = claim }
  }

  private static let pageFileCountMax = DeliveryLimits().pageFileCountMax

  func providePage(_ id: Identifier, _ from: UInt64) {
    guard let number = outgoing[id]?.entry.number else { return }
    runtime.run(with: peer.application) { [container = runtime.container] in
      try Self.files(of: number, from: from, in: container)
    } then: { peer, page in
      switch page {
      case .success(let files): peer.deliveries.step { $0.page(id, from: from, files) }
      case .failure(let error): peer.outbox.fail(id, error)
      }
    }
  }

  private static func files(
    of number: UInt64, from: UInt64, in container: SecureContainer
  ) throws -> [WireOfferedFile] {
    try container.store.outboxFiles(number, from: from, limit: pageFileCountMax).map { file in
      .with {
        $0.path = Data(file.path)
        $0.byteCount = file.size
        $0.modified = file.modified
        $0.permissions = UInt32(file.permissions)
      }
    }
  }

  func beginStream(
    _ id: Identifier, _ stream: OutgoingDelivery.Stream, _ key: Data, _ from: UInt64, credit: UInt64,
    checking: UInt64?
  ) {
    guard let delivery = outgoing[id] else { return }
    outgoing[id]?.stream = stream
    let source = OutboxSource(
      runtime.container.store, delivery.entry, from: from, checking: checking, files: delivery.files
    ) { [meter = delivery.meter] index, file in
      meter?.advance {
        $0.filesSent = max($0.filesSent, index)
        $0.file = file ?? $0.file
      }
    }
    peer.channels[stream.channel]?.bulk.send(
      stream: stream.number, key: key, byteCount: delivery.entry.byteCount - from, credit: credit,
      from: source)
  }

  func endStream(_ id: Identifier) { outgoing[id]?.stream = nil }

  /// The bulk lane has sent everything of a stream, or could not.
  func streamSent(_ stream: UInt32, _ error: (any Error)?, on number: ChannelNumber) {
    guard let error,
      let (id, _) = outgoing.first(where: {
        $0.value.stream?.channel == number && $0.value.stream?.number == stream
      })
    else { return }
    fail(id, error)
  }

  private func fail(_ id: Identifier, _ error: any Error) {
    // One that was taken back is gone from the outbox before the app hears of it: what cannot be read of it any more is no failure.
    guard peer.deliveries.canFail(id) else { return }
    runtime.logger.error("a message of the outbox cannot be read", metadata: ["error": "\(error)"])
    // A closed container is no reason to call its message damaged.
    let isClosed = Shortage.isOfClosedContainer(error)
    if isClosed || Shortage.isReason(of: error) {
      // Without a channel it waits for the next one already.
      guard let number = peer.deliveries.channel(ofSent: id) else { return }
      let detail = isClosed ? Shortage.containerDetail : Shortage.detail
      peer.channels[number]?.lane.close(.limitExceeded, detail: detail)
      return
    }
    let error = Runtime.servicesError(error)
    outgoing[id]?.failure = error
    peer.deliveries.step { $0.fail(id, WireFailure(error)) }
  }

  // MARK: What becomes of it

  /// The request that is delivered, when this process sent it.
  func sent(of id: Identifier) -> SentRequest? {
    guard let delivery = outgoing[id], !delivery.isReply else { return nil }
    return delivery.request.flatMap { peer.sent[$0] }
  }

  func delivered(_ id: Identifier, _ wire: WireIncarnation, _ count: UInt64) {
    outgoing[id]?.receipt = Incarnation(wire).map { DeliveryReceipt(incarnation: $0, count: count) }
  }

  private func tellStarted(_ path: String, _ id: Identifier) {
    guard let delivery = outgoing[id] else { return }
    sent(of: id)?.tell(.didStartSending(attachment: path))
    guard delivery.isReply, let request = delivery.request,
      let incoming = peer.requests.incoming[request]
    else { return }
    incoming.request.tell(.didStartSending(attachment: path))
    guard let provider = incoming.request.offer?.provider else { return }
    peer.requests.callbacks.async { provider.didStartSending(attachment: path, for: incoming.request) }
  }

  func wasAccepted(_ id: Identifier) {
    guard let delivery = outgoing[id] else { return }
    outgoing[id]?.wasAccepted = true
    sent(of: id)?.didSend()
    // Files of no bytes have no first one.
    if delivery.entry.byteCount == 0 {
      runtime.fileQueue.async { delivery.files.tell(before: delivery.entry.fileCount) }
    }
  }

  func progressed(_ id: Identifier, _ received: UInt64) {
    outgoing[id]?.bytesDone = received
    outgoing[id]?.meter?.advance { $0.bytesDone = max($0.bytesDone, received) }
  }

  func settled(_ id: Identifier, _ end: SentDeliveryEnd) {
    guard let delivery = outgoing[id] else { return }
    FailPoint.settling.pass()
    let hasHandler = peer.core.outboxEndHandler != nil
    let (runtime, application) = (runtime, peer.application)
    runtime.fileQueue.async {
      var message: OutboxMessage?
      if hasHandler {
        do {
          message = try OutboxMessage(delivery.entry, in: runtime.container, includesFiles: true)
        } catch  where Shortage.isOfClosedContainer(error) {
          // With the next start it is offered again, and told then.
        } catch {
          message = OutboxMessage(unread: delivery, to: application)
        }
      }
      // What an earlier process sent most of.
      if end == .committed { delivery.files.tell(before: delivery.entry.fileCount) }
      var end = end
      var isSettled = true
      do {
        try runtime.container.store.settleOutbox(delivery.entry.number, has: delivery.receipt)
        // Who hears that it never comes may send it again.
        if end != .committed { try runtime.container.store.synchronize() }
      } catch {
        runtime.logger.error("the outbox cannot be changed", metadata: ["error": "\(error)"])
        isSettled = false
        // It may come after all: with the next start it is offered again.
        if end != .committed {
          end = .lost(
            WireFailure(
              ServicesError(.general, detail: "it may still be in the outbox, which cannot be changed")))
        }
      }
      FailPoint.settled.pass()
      runtime.perform { [end, isSettled, message] core in
        let peer = core.peers[application]
        // Who is told may end these services, and what is in the outbox then is offered again.
        if let message, let handler = core.outboxEndHandler {
          let error = Self.error(of: end, peer?.outbox.outgoing[id] ?? delivery)
          core.callbacks(for: application).async { handler(message, error) }
        }
        peer?.outbox.ended(id, end, isSettled: isSettled)
      }
    }
  }

  /// It is out of the outbox, if that could be written down.
  private func ended(_ id: Identifier, _ end: SentDeliveryEnd, isSettled: Bool) {
    guard let delivery = outgoing[id] else { return }
    timeLimits[id] = nil
    if end == .committed { delivery.meter?.finish() }
    tellEnd(id, delivery, end)
    // A cancel that came meanwhile.
    if end == .committed { sent(of: id)?.didNotCancel() }
    let ended = outgoing.removeValue(forKey: id)
    if delivery.isReply { chargeReply(-1) }
    peer.core.messagesChanged()
    for body in ended?.whenEnded ?? [] { body(end) }
    for body in ended?.afterwards ?? [] { body(peer) }
    // An earlier process of the receiver may have had it, and have said that it does not reply.
    if delivery.offerCount > 1, !delivery.isReply, let request = delivery.request,
      peer.sent[request]?.awaitsDelivery == true
    {
      peer.deliveries.step { $0.inquire(request) }
    }
    if end == .committed { acknowledge() }
    // A consumer that has refused or discarded the reply ignores this.
    if end != .committed, isSettled, delivery.isReply, let request = delivery.request,
      !peer.deliveries.isAwaited(request)
    {
      peer.deliveries.step { $0.replyLost(request) }
    }
  }

  /// The error with which a request ends whose reply the provider had, and does not send.
  static let replyLost = ServicesError(
    .connectionLost, detail: "the provider's reply was taken back, or could not be sent")

  /// Nil: the receiver has it.
  private static func error(of end: SentDeliveryEnd, _ delivery: OutgoingDelivery) -> ServicesError? {
    switch end {
    case .committed: nil
    case .refused(let failure): delivery.failure ?? ServicesError(failure)
    case .lost(let failure): ServicesError(failure)
    case .cancelled: delivery.failure ?? ServicesError(.cancelled)
    }
  }

  private func tellEnd(_ id: Identifier, _ delivery: OutgoingDelivery, _ end: SentDeliveryEnd) {
    let sent = sent(of: id)
    let error = Self.error(of: end, delivery)
    if let error, let sent {
      let isLost = if case .lost = end { true } else { false }
      sent.fail(isLost ? .lost : error.code == .cancelled ? .cancelled : .refused, error)
      peer.sent[sent.id] = nil
    } else if let sent {
      peer.didDeliver(sent)
    }
    if delivery.isReply, let request = delivery.request { peer.requests.tellEnd(of: request, error) }
  }

  /// The receiver forgets what it is told of, and would take it for another message when it came again: so that is on the disk before.
  /// One wait for the disk is for all that is settled meanwhile.
  private func acknowledge() {
    isAcknowledgementDue = isAcknowledging
    guard !isAcknowledging else { return }
    isAcknowledging = true
    let (end, application, container) = (end, peer.application, runtime.container)
    runtime.run(with: application) { () throws -> (UInt64, Incarnation) in
      let floor = try Self.floor(application, in: container) ?? end
      try container.store.synchronize()
      return (floor, try container.store.outboxReceiver(application.text).incarnation)
    } then: { peer, settled in
      peer.outbox.didAcknowledge(settled)
    }
  }

  private func didAcknowledge(_ settled: Result<(UInt64, Incarnation), any Error>) {
    isAcknowledging = false
    if case .success(let (floor, incarnation)) = settled {
      durableFloor = max(durableFloor, floor)
      peer.deliveries.step { $0.acknowledge(floor: floor, incarnation: WireIncarnation(incarnation)) }
    }
    if isAcknowledgementDue { acknowledge() }
  }

  // MARK: Replies that are awaited

  /// A channel to another process of the provider says what became of a request that an earlier one had.
  func standing(_ request: Identifier, _ isAwaited: Bool) {
    guard !isAwaited, let sent = peer.sent[request], sent.isReplyDelivered else { return }
    if sent.expectsReply == false { return endedWithoutReply(request) }
    peer.sent[request] = nil
    sent.fail(
      .lost, ServicesError(.connectionLost, detail: "the other app does not know the request any more"))
  }

  func endedWithoutReply(_ request: Identifier) {
    guard peer.sent[request]?.isReplyDelivered == true else { return }
    afterDelivery(of: request) { peer in
      guard let sent = peer.sent.removeValue(forKey: request) else { return }
      sent.end(.endedWithoutReply, .success(nil), .didEndWithoutReply)
    }
  }

  /// The provider may say so before it says that the reply is delivered. When the reply has come over a channel that broke, and is being
  /// committed, its commit decides.
  func lostReply(to request: Identifier) {
    guard peer.sent[request] != nil, !peer.inbox.isCommittingReply(to: request) else { return }
    afterDelivery(of: request) { $0.sent.removeValue(forKey: request)?.fail(.lost, Self.replyLost) }
  }

  /// Goes on when the sender of a request knows that it was delivered: at once, or when that is settled in the outbox. A reply may come
  /// before, and comes of nothing else.
  func afterDelivery(of request: Identifier, _ body: @escaping @Sendable (PeerSession) -> Void) {
    guard outgoing[request] == nil || peer.sent[request] == nil else {
      outgoing[request]?.afterwards.append(body)
      return
    }
    if let sent = peer.sent[request] { peer.didDeliver(sent) }
    body(peer)
  }
}
