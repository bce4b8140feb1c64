import ContainerStore
import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files that this app sends: in the outbox of its container first, so that they outlive the process.
extension Runtime {
  // MARK: Into the outbox

  /// Returns when the request is on the disk.
  func store(_ sent: SentRequest) async throws {
    try await requireRunning()
    let wire = WireOffer.with { $0.request = wireRequest(sent) }
    let entry = try await store(wire, id: sent.id, to: sent.application, sent.request.attachments)
    FailPoint.stored.pass()
    core.perform { core in
      guard core.life == .running else {
        return sent.end(.lost, .failure(Self.stopped), .didFail(Self.stopped))
      }
      sent.advance {
        $0.byteCount = entry.byteCount
        $0.fileCount = entry.fileCount
      }
      _ = self.peer(sent.application, &core)
      core.peers[sent.application]?.sent[sent.id] = sent
      self.endHold(of: sent.application, &core)
      self.enqueue(entry, sent.application, request: sent.id, isReply: false, &core)
      if self.isOnItsWay(to: sent.application, core) { sent.accept() }
    }
  }

  static let stopped = ServicesError(
    .connectionLost, detail: "these services were stopped; what is in the outbox goes on at the next start")

  func requireRunning() async throws {
    let error: ServicesError? = await core.result { core in
      core.life == .running
        ? nil
        : core.broker.lastFailure
          ?? ServicesError(.brokerUnavailable, detail: "these services are not started")
    }
    if let error { throw error }
  }

  private func store(
    _ wire: WireOffer, id: Identifier, to application: ApplicationID, _ attachments: [String],
    endingQueued arrival: UInt64? = nil
  ) async throws -> OutboxEntry {
    let message: [UInt8] = try wire.serializedBytes()
    // Then it is offered at once, and no second commit is needed for that.
    let isConnected = await core.result { core in
      core.peers[application].map { $0.exchange.openChannelCount > 0 } ?? false
    }
    do {
      return try await blocking { [container] in
        try container.store.enqueue(
          OutgoingMessage(
            id: id, receiver: application.text, message: message, attachments: attachments),
          mayBeOffered: isConnected, endingQueued: arrival)
      }
    } catch {
      throw Self.servicesError(error)
    }
  }

  private func enqueue(
    _ entry: OutboxEntry, _ application: ApplicationID, request: Identifier?, isReply: Bool,
    wasOffered: Bool = false, _ core: inout Core
  ) {
    let id = entry.id
    let files = OutgoingFiles(container.store, entry) { path in
      self.core.perform { self.tellStarted(path, id, application, &$0) }
    }
    core.peers[application]?.outgoing[id] = OutgoingDelivery(
      entry: entry, request: request, isReply: isReply, files: files)
    let end = core.peers[application]?.outboxEnd ?? 0
    core.peers[application]?.outboxEnd = max(end, entry.number + 1)
    step(application, &core) {
      $0.enqueue(
        id, number: entry.number, fileCount: entry.fileCount, byteCount: entry.byteCount,
        wasOffered: wasOffered)
    }
  }

  /// What earlier processes of this app left.
  func resumeOutbox(_ entries: [OutboxEntry], _ core: inout Core) {
    for entry in entries {
      guard let application = try? ApplicationID(entry.receiver) else {
        logger.error("a message in the outbox is for nobody", metadata: ["number": "\(entry.number)"])
        continue
      }
      let id = entry.id
      _ = peer(application, &core)
      guard core.peers[application]?.outgoing[id] == nil else { continue }
      enqueue(
        entry, application, request: nil, isReply: false, wasOffered: entry.mayBeOffered, &core)
      if let ended = core.takenBack.removeValue(forKey: id) { takeBack(id, application, ended, &core) }
    }
    for ended in core.takenBack.values.joined() { ended(nil) }
    core.takenBack = [:]
  }

  // MARK: Replies

  /// Puts a reply into the outbox, and what it answers out of the queue. Throws `general` for a request that cannot be replied to.
  func storeReply(
    _ reply: WireReply, _ attachments: [String], to request: IncomingRequest,
    _ foreground: ForegroundPreference
  ) async throws {
    let id = request.id
    let taken: Bool = await core.result { core in
      guard core.life == .running, let incoming = core.peers[request.sender]?.incoming[id],
        !incoming.hasReplied,
        !incoming.isReplyStored
      else { return false }
      core.peers[request.sender]?.incoming[id]?.isReplyStored = true
      return true
    }
    guard taken else { throw Self.cannotReply }
    do {
      var wire = reply
      wire.id = id.data
      wire.foreground = foreground.wire
      wire.attachments = UInt64(attachments.count)
      let offer = WireOffer.with { $0.reply = wire }
      let entry = try await store(
        offer, id: Identifier.random(), to: request.sender, attachments, endingQueued: request.arrival)
      core.perform { core in
        guard core.life == .running else { return }
        _ = self.peer(request.sender, &core)
        core.peers[request.sender]?.incoming[id]?.hasReplied = true
        self.enqueue(entry, request.sender, request: id, isReply: true, &core)
        guard request.arrival == nil else { return }
        let outputs = try? core.peers[request.sender]?.exchange.endWithoutReply(
          id, isDelivered: true, now: Self.now)
        self.act(outputs ?? [], request.sender, &core)
      }
    } catch {
      core.perform { $0.peers[request.sender]?.incoming[id]?.isReplyStored = false }
      throw error
    }
  }

  static let cannotReply = ServicesError(
    .general, detail: "the request is not there any more, or was replied to")

  // MARK: What the state machine asks for

  func provideOffer(_ id: Identifier, _ application: ApplicationID, _ core: Core) {
    guard let peer = core.peers[application], let delivery = peer.outgoing[id] else { return }
    let (entry, taken, durableFloor) = (delivery.entry, delivery.takenIncarnation, peer.durableFloor)
    fileQueue.async { [container] in
      let offer = Result { () throws -> WireOffer in
        var offer = try WireOffer(serializedBytes: container.store.outboxMessage(entry.number))
        offer.floor = durableFloor
        // Both branches make durable which earlier messages were settled.
        if !entry.mayBeOffered || durableFloor == 0 {
          offer.floor = try Self.floor(application, in: container) ?? entry.number
          if entry.mayBeOffered {
            try container.store.synchronize()
          } else {
            try container.store.markOffered(entry.number)
          }
        }
        offer.floor = min(offer.floor, entry.number)
        offer.id = entry.id.data
        offer.incarnation = try container.store.outboxIncarnation(otherThan: taken).data
        return offer
      }
      self.core.perform { core in
        switch offer {
        case .success(let offer):
          FailPoint.offering.pass()
          if case .reply? = offer.message { core.peers[application]?.outgoing[id]?.isReply = true }
          core.peers[application]?.outgoing[id]?.request = offer.requestID
          core.peers[application]?.outgoing[id]?.entry.mayBeOffered = true
          core.peers[application]?.outgoing[id]?.incarnation = Identifier(offer.incarnation)
          core.peers[application]?.durableFloor = max(offer.floor, core.peers[application]?.durableFloor ?? 0)
          self.step(application, &core) { $0.offer(offer) }
        case .failure(let error): self.fail(id, Self.servicesError(error), application, &core)
        }
      }
    }
  }

  /// The least number for this app that is not settled; nil when all are. What the container says: a message that is on its way from there to
  /// the runtime's state counts.
  private static func floor(_ application: ApplicationID, in container: SecureContainer) throws -> UInt64? {
    try container.store.outboxFloor(receiver: application.text)
  }

  private static let pageFileCountMax = DeliveryLimits().pageFileCountMax

  func providePage(_ id: Identifier, _ from: UInt64, _ application: ApplicationID, _ core: Core) {
    guard let entry = core.peers[application]?.outgoing[id]?.entry else { return }
    fileQueue.async { [container] in
      let page = Result { () throws -> [WireOfferedFile] in
        try container.store.outboxFiles(entry.number, from: from, limit: Self.pageFileCountMax).map { file in
          .with {
            $0.path = Data(file.path)
            $0.byteCount = file.size
            $0.modified = file.modified
            $0.permissions = UInt32(file.permissions)
          }
        }
      }
      self.core.perform { core in
        switch page {
        case .success(let files): self.step(application, &core) { $0.page(id, from: from, files) }
        case .failure(let error): self.fail(id, Self.servicesError(error), application, &core)
        }
      }
    }
  }

  func beginStream(
    _ id: Identifier, _ stream: OutgoingDelivery.Stream, _ key: Data, _ from: UInt64,
    _ application: ApplicationID, _ core: inout Core
  ) {
    guard let delivery = core.peers[application]?.outgoing[id] else { return }
    core.peers[application]?.outgoing[id]?.stream = stream
    let sent = sent(of: id, application, core)
    fileQueue.async { [container] in
      let source = Result {
        try OutboxSource(container.store, delivery.entry, from: from, files: delivery.files) {
          [weak sent] index, file in
          sent?.advance {
            $0.filesSent = max($0.filesSent, index)
            $0.file = file ?? $0.file
          }
        }
      }
      self.core.perform { core in
        guard let current = core.peers[application]?.outgoing[id]?.stream, current.channel == stream.channel,
          current.number == stream.number
        else { return }
        switch source {
        case .failure(let error): self.fail(id, Self.servicesError(error), application, &core)
        case .success(let source):
          core.peers[application]?.outgoing[id]?.stream?.hasBegun = true
          core.peers[application]?.channels[stream.channel]?.bulk.send(
            stream: stream.number, key: key, byteCount: delivery.entry.byteCount - from,
            credit: current.credit, from: source)
        }
      }
    }
  }

  /// The bulk lane has sent everything of a stream, or could not.
  func streamSent(
    _ stream: UInt32, _ error: (any Error)?, _ application: ApplicationID, _ number: ChannelNumber,
    _ core: inout Core
  ) {
    guard let error,
      let (id, _) = core.peers[application]?.outgoing.first(where: {
        $0.value.stream?.channel == number && $0.value.stream?.number == stream
      })
    else { return }
    fail(id, Self.servicesError(error), application, &core)
  }

  private func fail(
    _ id: Identifier, _ error: ServicesError, _ application: ApplicationID, _ core: inout Core
  ) {
    // One that was taken back is gone from the outbox before the app hears of it: what cannot be read of it any more is no failure.
    guard core.life == .running, core.peers[application]?.deliveries.canFail(id) == true else { return }
    logger.error("a message of the outbox cannot be read", metadata: ["error": "\(error)"])
    core.peers[application]?.outgoing[id]?.failure = error
    step(application, &core) { $0.fail(id, Self.failure(error)) }
  }

  // MARK: What becomes of it

  /// The request that is delivered, when this process sent it.
  func sent(of id: Identifier, _ application: ApplicationID, _ core: Core) -> SentRequest? {
    guard let delivery = core.peers[application]?.outgoing[id], !delivery.isReply else { return nil }
    return delivery.request.flatMap { core.peers[application]?.sent[$0] }
  }

  /// A reply's request, for an object that wants to hear of it.
  private func answered(
    _ delivery: OutgoingDelivery, _ application: ApplicationID, _ core: Core
  ) -> (any ServiceProvider, IncomingRequest)? {
    guard delivery.isReply, let request = delivery.request,
      let incoming = core.peers[application]?.incoming[request],
      case .object(let provider) = incoming.offer.handler
    else { return nil }
    return (provider, incoming.request)
  }

  private func tellStarted(
    _ path: String, _ id: Identifier, _ application: ApplicationID, _ core: inout Core
  ) {
    guard let delivery = core.peers[application]?.outgoing[id] else { return }
    sent(of: id, application, core)?.tell(.didStartSending(attachment: path))
    guard let (provider, request) = answered(delivery, application, core) else { return }
    callbacks(for: application, core).async { provider.didStartSending(attachment: path, for: request) }
  }

  func wasAccepted(_ id: Identifier, _ application: ApplicationID, _ core: inout Core) {
    guard let delivery = core.peers[application]?.outgoing[id] else { return }
    core.peers[application]?.outgoing[id]?.wasAccepted = true
    sent(of: id, application, core)?.didSend()
    // Files of no bytes have no first one.
    if delivery.entry.byteCount == 0 {
      fileQueue.async { delivery.files.tell(before: delivery.entry.fileCount) }
    }
  }

  func progressed(_ id: Identifier, _ received: UInt64, _ application: ApplicationID, _ core: inout Core) {
    core.peers[application]?.outgoing[id]?.bytesDone = received
    sent(of: id, application, core)?.advance { $0.bytesDone = max($0.bytesDone, received) }
  }

  func settled(_ id: Identifier, _ end: SentDeliveryEnd, _ application: ApplicationID, _ core: inout Core) {
    guard let delivery = core.peers[application]?.outgoing[id] else { return }
    FailPoint.settling.pass()
    let hasHandler = core.outboxEndHandler != nil
    fileQueue.async {
      let message = hasHandler ? try? OutboxMessage(delivery.entry, in: self.container) : nil
      // What an earlier process sent most of.
      if end == .committed { delivery.files.tell(before: delivery.entry.fileCount) }
      do {
        try self.container.store.settleOutbox(delivery.entry.number)
        // Who hears that it never comes may send it again.
        if end != .committed { try self.container.store.synchronize() }
      } catch {
        self.logger.error("the outbox cannot be changed", metadata: ["error": "\(error)"])
      }
      FailPoint.settled.pass()
      self.core.perform { core in
        // Who is told may end these services, and what is in the outbox then is offered again.
        if let message, let handler = core.outboxEndHandler {
          let error = Self.error(of: end, core.peers[application]?.outgoing[id] ?? delivery)
          self.callbacks(for: application, core).async { handler(message, error) }
        }
        self.tellEnd(id, end, application, &core)
        // A cancel that came meanwhile.
        if end == .committed { self.sent(of: id, application, core)?.didNotCancel() }
        let ended = core.peers[application]?.outgoing.removeValue(forKey: id)
        for body in ended?.whenEnded ?? [] { body(end) }
        if end == .committed, ended?.hasEndedWithoutReply == true {
          self.endedWithoutReply(id, application, &core)
        }
        if end == .committed { self.acknowledge(application, &core) }
      }
    }
  }

  /// Nil: the receiver has it.
  private static func error(of end: SentDeliveryEnd, _ delivery: OutgoingDelivery) -> ServicesError? {
    switch end {
    case .committed: nil
    case .refused(let failure): delivery.failure ?? ServicesError(failure)
    case .cancelled: delivery.failure ?? ServicesError(.cancelled)
    }
  }

  private func tellEnd(
    _ id: Identifier, _ end: SentDeliveryEnd, _ application: ApplicationID, _ core: inout Core
  ) {
    guard let delivery = core.peers[application]?.outgoing[id] else { return }
    let sent = sent(of: id, application, core)
    let error = Self.error(of: end, delivery)
    if error == nil {
      sent?.didDeliver()
      if let sent { prefer(sent.request.foreground, application, &core) }
    }
    if let error, let sent {
      sent.end(error.code == .cancelled ? .cancelled : .refused, .failure(error), .didFail(error))
      core.peers[application]?.sent[sent.id] = nil
    }
    guard delivery.isReply, let request = delivery.request else { return }
    let answered = answered(delivery, application, core)
    core.peers[application]?.incoming[request] = nil
    guard let (provider, incoming) = answered else { return }
    callbacks(for: application, core).async {
      if let error { provider.didFailSending(incoming, error) } else { provider.didFinishSending(incoming) }
    }
  }

  /// The receiver forgets what it is told of, and would take it for another message when it came again: so that is on the disk before.
  /// One wait for the disk is for all that is settled meanwhile.
  private func acknowledge(_ application: ApplicationID, _ core: inout Core) {
    guard let peer = core.peers[application] else { return }
    peer.isAcknowledgementDue = peer.isAcknowledging
    guard !peer.isAcknowledging else { return }
    peer.isAcknowledging = true
    let end = peer.outboxEnd
    fileQueue.async { [container] in
      let settled = Result { () throws -> (UInt64, Identifier) in
        let floor = try Self.floor(application, in: container) ?? end
        try container.store.synchronize()
        return (floor, try container.store.outboxIncarnation())
      }
      self.core.perform { core in
        peer.isAcknowledging = false
        if case .success(let (floor, incarnation)) = settled {
          peer.durableFloor = max(peer.durableFloor, floor)
          self.step(application, &core) { $0.acknowledge(floor: floor, incarnation: incarnation) }
        }
        if peer.isAcknowledgementDue { self.acknowledge(application, &core) }
      }
    }
  }

  // MARK: Replies that are awaited

  /// A channel to another process of the provider says what became of a request that an earlier one had.
  func standing(_ request: Identifier, _ isAwaited: Bool, _ application: ApplicationID, _ core: inout Core) {
    guard !isAwaited, let sent = core.peers[application]?.sent[request], sent.isDelivery else { return }
    if sent.expectsReply == false { return endedWithoutReply(request, application, &core) }
    let error = ServicesError(.connectionLost, detail: "the other app does not know the request any more")
    core.peers[application]?.sent[request] = nil
    sent.end(.lost, .failure(error), .didFail(error))
  }

  func endedWithoutReply(_ request: Identifier, _ application: ApplicationID, _ core: inout Core) {
    guard let sent = core.peers[application]?.sent[request], sent.isDelivery else { return }
    guard sent.status == .delivered else {
      // It may have come right behind what settles the delivery.
      core.peers[application]?.outgoing[request]?.hasEndedWithoutReply = true
      return
    }
    core.peers[application]?.sent[request] = nil
    sent.end(.endedWithoutReply, .success(nil), .didEndWithoutReply)
  }
}
