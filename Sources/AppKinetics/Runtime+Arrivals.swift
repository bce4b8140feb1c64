import ContainerStore
import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files, and replies to them, that come into this app's container.
extension Runtime {
  // MARK: Offers

  /// What was delivered before is answered so, whatever the app thinks of it now.
  func offered(_ offer: WireOffer, _ application: ApplicationID, _ core: inout Core) {
    guard let id = Identifier(exactly: offer.id) else { return }
    let delivery = core.peers[application]?.arriving[id] ?? IncomingDelivery(offer)
    let attempt = delivery.beginAttempt(offer)
    core.peers[application]?.arriving[id] = delivery
    FailPoint.offered.pass()
    delivery.queue.async { [container] in
      do {
        let (sender, incarnation) = (application.text, Identifier(offer.incarnation))
        let ledger = try container.store.ledgerState(
          sender: sender, incarnation: incarnation, number: offer.number, id: id)
        // A container that takes no changes says this of what it has all the same.
        try? container.store.raiseDeliveryFloor(sender: sender, incarnation: incarnation, to: offer.floor)
        self.core.perform { core in
          guard self.isCurrent(delivery, attempt, id, application, core) else { return }
          switch ledger {
          case .unknown: self.check(delivery, id, application, &core)
          case .numberTaken:
            // It comes again under another number: a reply is not lost.
            core.peers[application]?.arriving[id] = nil
            self.step(application, &core) { $0.refuse(id, Self.failure(ServicesError(.numberTaken))) }
          case .delivered:
            core.peers[application]?.arriving[id] = nil
            self.step(application, &core) { $0.committed(id) }
          }
        }
      } catch {
        self.abandon(delivery, attempt, id, error, application)
      }
    }
  }

  /// Whether the message is there is not known: nothing is answered, and the next offer is, by the ledger.
  private func abandon(
    _ delivery: IncomingDelivery, _ attempt: UInt64, _ id: Identifier, _ error: any Error,
    _ application: ApplicationID
  ) {
    core.perform { core in
      guard core.life == .running, self.isCurrent(delivery, attempt, id, application, core) else { return }
      self.logger.error("the container fails", metadata: ["app": "\(application)", "error": "\(error)"])
      core.peers[application]?.arriving[id] = nil
      for (number, channel) in core.peers[application]?.channels ?? [:] {
        channel.lane.close(.noError)
        self.step(application, &core) { $0.channelClosed(number) }
      }
      // Without a channel it is only forgotten.
      self.step(application, &core) { $0.refuse(id, Self.failure(ServicesError(.general))) }
    }
  }

  private func isCurrent(
    _ delivery: IncomingDelivery, _ attempt: UInt64, _ id: Identifier, _ application: ApplicationID,
    _ core: Core
  ) -> Bool {
    core.peers[application]?.arriving[id] === delivery && delivery.attempt == attempt
  }

  private func check(
    _ delivery: IncomingDelivery, _ id: Identifier, _ application: ApplicationID, _ core: inout Core
  ) {
    let offer = delivery.offer
    do throws(ServicesError) {
      if let refusal = core.peers[application]?.deliveries.refusal(of: offer) { throw ServicesError(refusal) }
      switch offer.message {
      case .request(let request):
        try check(request, offer, application, core)
        switch core.state {
        case .running: break
        case .suspended: throw ServicesError(.processSuspended)
        case .locked:
          let until = Self.now + options.unlockTime
          core.lockedOffers.append(
            LockedOffer(peer: application, delivery: delivery, id: id, until: until))
          return core.wake(at: until)
        }
      case .reply: try checkReply(offer, application, core)
      case nil: throw ServicesError(.invalidParams, detail: "an offer of nothing")
      }
      receive(delivery, id, application)
    } catch {
      refuseDelivery(id, error, application, &core)
    }
  }

  /// The checks of the page, before anything is copied.
  private func check(
    _ request: WireRequest, _ offer: WireOffer, _ application: ApplicationID, _ core: Core
  ) throws(ServicesError) {
    let found = try offered(request, from: application, core)
    let params: ServiceValue? = request.hasParams ? try ServiceValue(request.params) : nil
    if found.validates {
      try found.definition.validate(
        request: request.method, params: params, attachmentCount: Int(clamping: offer.fileCount))
    }
  }

  private func checkReply(
    _ offer: WireOffer, _ application: ApplicationID, _ core: Core
  ) throws(ServicesError) {
    guard let request = offer.requestID else { throw ServicesError(.invalidParams) }
    guard core.peers[application]?.sent[request] != nil || core.unclaimedHandler != nil else {
      throw ServicesError(.general, detail: "nobody waits for this reply")
    }
  }

  private func refuseDelivery(
    _ id: Identifier, _ error: ServicesError, _ application: ApplicationID, _ core: inout Core
  ) {
    if let delivery = core.peers[application]?.arriving.removeValue(forKey: id) {
      delivery.stream = nil
      delivery.queue.async { _ = self.discard(delivery, application) }
      replyLost(delivery, .replied, error, application, &core)
    }
    step(application, &core) { $0.refuse(id, Self.failure(error)) }
  }

  /// Nobody gets the reply that was on its way.
  private func replyLost(
    _ delivery: IncomingDelivery, _ status: SentRequest.Status, _ error: ServicesError,
    _ application: ApplicationID, _ core: inout Core
  ) {
    guard case .reply? = delivery.offer.message, let request = delivery.request,
      let sent = core.peers[application]?.sent.removeValue(forKey: request)
    else { return }
    sent.didDeliver()
    sent.end(status, .failure(error), .didFail(error))
  }

  /// Nothing is left of it, not even of what an earlier process or channel has staged. True when it was delivered before: that stays.
  private func discard(_ delivery: IncomingDelivery, _ application: ApplicationID) -> Bool {
    do {
      let message = Self.arriving(delivery.offer, application)
      let ledger = try container.store.ledgerState(
        sender: message.sender, incarnation: message.incarnation, number: message.number, id: message.id)
      if ledger == .unknown { try delivery.discard(container.store, message) }
      return ledger == .delivered
    } catch {
      logger.error("what has arrived of a message cannot be removed", metadata: ["error": "\(error)"])
      return false
    }
  }

  /// The app was unlocked, or its time is over.
  func continueOffers(_ core: inout Core, now: UInt64? = nil) {
    guard !core.lockedOffers.isEmpty else { return }
    let isDue = { (offer: LockedOffer) in now == nil || now! >= offer.until }
    let mine = core.lockedOffers.filter(isDue)
    core.lockedOffers.removeAll(where: isDue)
    for locked in mine where core.peers[locked.peer]?.arriving[locked.id] === locked.delivery {
      if now == nil {
        check(locked.delivery, locked.id, locked.peer, &core)
      } else {
        refuseDelivery(locked.id, ServicesError(.notAllowed), locked.peer, &core)
      }
    }
  }

  // MARK: Receiving

  private func receive(_ delivery: IncomingDelivery, _ id: Identifier, _ application: ApplicationID) {
    let attempt = delivery.attempt
    delivery.queue.async { [container] in
      do {
        let offer = delivery.offer
        try delivery.begin(container.store, Self.arriving(offer, application))
        FailPoint.begun.pass()
        let (known, received) = delivery.withArrival { ($0.filesKnown, $0.received) } ?? (0, 0)
        let room = try container.store.availableByteCount()
        let needed = offer.byteCount - min(received, offer.byteCount)
        guard needed <= room, offer.fileCount <= (room - needed) / Self.fileByteCount else {
          throw ServicesError(
            .noSpace, detail: "\(offer.byteCount) bytes are offered, and there is room for \(room)")
        }
        self.core.perform { self.began(delivery, attempt, id, known, application, &$0) }
        if known == offer.fileCount { self.allKnown(delivery, attempt, id, application) }
      } catch {
        self.failed(delivery, attempt, id, error, application)
      }
    }
  }

  /// What the record of a file takes, about.
  private static let fileByteCount: UInt64 = 512

  /// `offer` was checked when it came: its id and its incarnation have 16 bytes.
  private static func arriving(_ offer: WireOffer, _ application: ApplicationID) -> ArrivingMessage {
    ArrivingMessage(
      id: Identifier(offer.id), sender: application.text, incarnation: Identifier(offer.incarnation),
      number: offer.number, message: stored(offer), fileCount: offer.fileCount, byteCount: offer.byteCount)
  }

  /// What is kept of an offer until its message was handled.
  private static func stored(_ offer: WireOffer) -> [UInt8] {
    let message = WireOffer.with { $0.message = offer.message }
    return (try? message.serializedBytes()) ?? []
  }

  private func failed(
    _ delivery: IncomingDelivery, _ attempt: UInt64, _ id: Identifier, _ error: any Error,
    _ application: ApplicationID
  ) {
    core.perform { core in
      guard core.life == .running, self.isCurrent(delivery, attempt, id, application, core) else { return }
      self.logger.warning(
        "a message cannot be received", metadata: ["app": "\(application)", "error": "\(error)"])
      self.refuseDelivery(id, Self.arrivalError(error), application, &core)
    }
  }

  /// What the sender hears: nothing of this container's own paths.
  private static func arrivalError(_ error: any Error) -> ServicesError {
    switch error {
    case let error as ServicesError: error
    case let error as ArrivalLimit: ServicesError(.limitExceeded, detail: error.name)
    case ContainerError.diskFull: ServicesError(.noSpace, detail: "the receiver's container")
    case ContainerError.invalidName, ContainerError.invalidArgument:
      ServicesError(.invalidParams, detail: "the list of files")
    default: ServicesError(.general, detail: "the receiver cannot store the files")
    }
  }

  private func began(
    _ delivery: IncomingDelivery, _ attempt: UInt64, _ id: Identifier, _ known: UInt64,
    _ application: ApplicationID, _ core: inout Core
  ) {
    guard isCurrent(delivery, attempt, id, application, core) else { return }
    let offer = delivery.offer
    if offer.fileCount > 0, delivery.tellCount() {
      tellCount(Int(clamping: offer.fileCount), of: offer, application, core)
    }
    if known < offer.fileCount { step(application, &core) { $0.wantPages(id, from: known) } }
  }

  func take(_ files: [WireOfferedFile], of id: Identifier, _ application: ApplicationID, _ core: Core) {
    guard let delivery = core.peers[application]?.arriving[id] else { return }
    let attempt = delivery.attempt
    delivery.queue.async {
      do {
        let known = try delivery.withArrival { arrival in
          try arrival.add(
            files.map {
              ArrivingFile(
                path: [UInt8]($0.path), size: $0.byteCount, modified: $0.modified,
                permissions: UInt16(truncatingIfNeeded: $0.permissions & 0o777))
            })
          return arrival.filesKnown
        }
        if known == delivery.offer.fileCount { self.allKnown(delivery, attempt, id, application) }
      } catch {
        self.failed(delivery, attempt, id, error, application)
      }
    }
  }

  /// Every file has its place: the contents may come.
  private func allKnown(
    _ delivery: IncomingDelivery, _ attempt: UInt64, _ id: Identifier, _ application: ApplicationID
  ) {
    let known = delivery.withArrival { arrival in
      (arrival.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }, arrival.received)
    }
    guard let (files, received) = known else { return }
    FailPoint.listed.pass()
    let key = Data(Random.bytes(Self.streamKeyByteCount))
    core.perform { core in
      guard self.isCurrent(delivery, attempt, id, application, core) else { return }
      if !files.isEmpty, delivery.tellFiles() { self.tell(files, of: delivery.offer, application, core) }
      self.step(application, &core) { $0.accept(id, from: received, key: key) }
      if received == delivery.offer.byteCount { self.commit(delivery, id, application, &core) }
    }
  }

  private static let streamKeyByteCount = 32

  func expect(
    _ id: Identifier, _ stream: IncomingDelivery.Stream, _ key: Data, _ from: UInt64, _ byteCount: UInt64,
    _ application: ApplicationID, _ core: inout Core
  ) {
    guard let delivery = core.peers[application]?.arriving[id] else { return }
    delivery.stream = stream
    let sink = ArrivalSink(delivery, stream) { [weak self] received in
      self?.core.perform { [weak self] core in
        core.peers[application]?.channels[stream.channel]?.lastUsed = Self.now
        core.peers[application]?.channels[stream.channel]?.lastDelivered = Self.now
        self?.step(application, &core) { $0.received(id, received) }
      }
    }
    core.peers[application]?.channels[stream.channel]?.bulk.expect(
      stream: stream.number, key: key, byteCount: byteCount, credit: DeliveryLimits().creditByteCount,
      sink: sink)
  }

  /// Everything of a stream has come, or it cannot be kept.
  func streamReceived(
    _ stream: UInt32, _ error: (any Error)?, _ application: ApplicationID, _ number: ChannelNumber,
    _ core: inout Core
  ) {
    let mine = IncomingDelivery.Stream(channel: number, number: stream)
    guard let (id, delivery) = core.peers[application]?.arriving.first(where: { $0.value.stream == mine })
    else {
      return
    }
    delivery.stream = nil
    if let error {
      failed(delivery, delivery.attempt, id, error, application)
    } else {
      commit(delivery, id, application, &core)
    }
  }

  private func commit(
    _ delivery: IncomingDelivery, _ id: Identifier, _ application: ApplicationID, _ core: inout Core
  ) {
    guard core.peers[application]?.deliveries.beginCommit(id) == true else { return }
    delivery.isCommitting = true
    let attempt = delivery.attempt
    delivery.queue.async {
      do {
        FailPoint.committing.pass()
        guard let queued = try delivery.commit() else { return }
        FailPoint.committed.pass()
        self.core.perform { core in
          // Else it comes at the next start.
          guard core.life == .running else { return }
          core.peers[application]?.arriving[id] = nil
          // First, so that a cancel that came meanwhile finds whom to tell.
          self.handle(queued, isRedelivered: false, &core)
          self.step(application, &core) { $0.committed(id) }
        }
      } catch {
        self.abandon(delivery, attempt, id, error, application)
      }
    }
  }

  // MARK: The sender, or this app, does not want it any more

  func withdrawn(_ id: Identifier, _ application: ApplicationID, _ core: inout Core) {
    core.lockedOffers.removeAll { $0.peer == application && $0.id == id }
    guard let delivery = core.peers[application]?.arriving.removeValue(forKey: id) else {
      return step(application, &core) { $0.discarded(id) }
    }
    delivery.stream = nil
    delivery.queue.async {
      let wasDelivered = self.discard(delivery, application)
      self.core.perform { core in
        if !wasDelivered {
          let error = ServicesError(
            .connectionLost, detail: "the provider took its reply back, or could not read it")
          self.replyLost(delivery, .lost, error, application, &core)
        }
        self.step(application, &core) { wasDelivered ? $0.committed(id) : $0.discarded(id) }
      }
    }
  }

  /// False when it is there already, or was never on its way.
  func cancelReception(of request: RequestID) async -> Bool {
    await core.result { core in
      for (application, peer) in core.peers {
        guard let (id, delivery) = peer.arriving.first(where: { $0.value.request == request }),
          delivery.isUnderWay, !delivery.isCommitting
        else { continue }
        self.refuseDelivery(
          id, ServicesError(.cancelled, detail: "the receiver does not want it"), application, &core)
        return true
      }
      return false
    }
  }

  func resultUnwanted(_ id: Identifier, _ application: ApplicationID, _ core: Core) {
    guard let incoming = core.peers[application]?.incoming[id] else { return }
    cancelRequested(incoming, core)
  }

  // MARK: What the app hears on the way

  private func tellCount(
    _ count: Int, of offer: WireOffer, _ application: ApplicationID, _ core: Core
  ) {
    guard let id = offer.requestID else { return }
    switch offer.message {
    case .reply: core.peers[application]?.sent[id]?.tell(.willReceive(attachmentCount: count))
    case .request(let request):
      guard let provider = provider(of: request, core) else { return }
      callbacks(for: application, core).async {
        provider.willReceive(attachmentCount: count, for: id, from: application)
      }
    case nil: break
    }
  }

  private func tell(
    _ files: [ArrivedFile], of offer: WireOffer, _ application: ApplicationID, _ core: Core
  ) {
    guard let id = offer.requestID else { return }
    switch offer.message {
    case .reply:
      guard let sent = core.peers[application]?.sent[id] else { return }
      for file in files { sent.tell(.willReceive(attachment: file.path, byteCount: file.byteCount)) }
    case .request(let request):
      guard let provider = provider(of: request, core) else { return }
      callbacks(for: application, core).async {
        for file in files {
          provider.willReceive(
            attachment: file.path, byteCount: file.byteCount, for: id, from: application)
        }
      }
    case nil: break
    }
  }

  private func provider(of request: WireRequest, _ core: Core) -> (any ServiceProvider)? {
    guard case .object(let provider)? = offer(of: request, core)?.handler else { return nil }
    return provider
  }

  func offer(of request: WireRequest, _ core: Core) -> Offer? {
    core.offers.first { $0.key.service.text == request.serviceID && $0.key.version.text == request.version }?
      .value
  }
}
