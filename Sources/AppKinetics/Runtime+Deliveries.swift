import ContainerStore
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files, and replies to them (SERVICE-PROTOCOL.md, "Attachments"): what their state machine wants done.
extension Runtime {
  // MARK: Work that waits for the disk

  /// Runs `body` where it may block.
  func blocking<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
      fileQueue.async { continuation.resume(with: Result { try body() }) }
    }
  }

  static func servicesError(_ error: any Error) -> ServicesError {
    switch error {
    case let error as ServicesError: error
    case ContainerError.diskFull: ServicesError(.noSpace, detail: "the container's disk")
    case ContainerError.fileDamaged: ServicesError(.sourceDamaged, path: (error as? ContainerError)?.path)
    case ContainerError.noSuchFile, ContainerError.cannotStore:
      ServicesError(.attachmentNotFound, path: (error as? ContainerError)?.path)
    default: ServicesError(.general, detail: "\(error)")
    }
  }

  static func failure(_ error: ServicesError) -> WireFailure {
    .with {
      $0.error = UInt32(error.code.rawValue)
      $0.detail = error.path ?? error.detail ?? ""
    }
  }

  // MARK: Stepping

  /// A step of the state machine of one peer, and what comes of it.
  func step(
    _ application: ApplicationID, _ core: inout Core, _ body: (inout Deliveries) -> [DeliveryOutput]
  ) {
    guard core.peers[application] != nil else { return }
    act(body(&core.peers[application]!.deliveries), application, &core)
  }

  func act(_ outputs: [DeliveryOutput], _ application: ApplicationID, _ core: inout Core) {
    for output in outputs {
      switch output {
      case .send(let message, let number): send(message, application, number, &core)
      case .close(let number, let fault, let detail):
        core.peers[application]?.channels[number]?.lane.close(fault, detail: detail)
      case .connect: connectForDeliveries(to: application, &core)

      case .wantsOffer(let id): provideOffer(id, application, core)
      case .wantsPage(let id, let from): providePage(id, from, application, core)
      case .beginStream(let id, let channel, let stream, let key, let from, let credit):
        let stream = OutgoingDelivery.Stream(channel: channel, number: stream, credit: credit)
        beginStream(id, stream, key, from, application, &core)
      case .raiseCredit(let id, let channel, let stream, let credit):
        core.peers[application]?.outgoing[id]?.stream?.credit = credit
        guard core.peers[application]?.outgoing[id]?.stream?.hasBegun == true else { break }
        core.peers[application]?.channels[channel]?.bulk.raiseCredit(stream, to: credit)
      case .endStream(let id, let channel, let stream):
        core.peers[application]?.outgoing[id]?.stream = nil
        core.peers[application]?.channels[channel]?.bulk.stopSending(stream)
      case .accepted(let id): wasAccepted(id, application, &core)
      case .progressed(let id, let received): progressed(id, received, application, &core)
      case .settled(let id, let end): settled(id, end, application, &core)
      case .numberTaken(let id):
        let taken = core.peers[application]?.outgoing[id]?.incarnation
        core.peers[application]?.outgoing[id]?.takenIncarnation = taken
        logger.warning(
          "the receiver knows another message under a number of this container, as after a restore: numbers begin anew",
          metadata: ["app": "\(application)"])
      case .tooLate(let id): sent(of: id, application, core)?.didNotCancel()

      case .offered(let offer): offered(offer, application, &core)
      case .page(let id, let files): take(files, of: id, application, core)
      case .expect(let id, let channel, let stream, let key, let from, let byteCount):
        expect(
          id, IncomingDelivery.Stream(channel: channel, number: stream), key, from, byteCount, application,
          &core)
      case .endExpecting(let id, let channel, let stream):
        core.peers[application]?.arriving[id]?.stream = nil
        core.peers[application]?.channels[channel]?.bulk.stopReceiving(stream)
      case .interrupted(let id):
        guard let delivery = core.peers[application]?.arriving[id] else { break }
        _ = delivery.beginAttempt()
        core.lockedOffers.removeAll { $0.delivery === delivery }
        delivery.queue.async { delivery.suspend() }
        let interrupted =
          core.peers[application]?.arriving.filter { !$0.value.isUnderWay && $0.key != id } ?? [:]
        if interrupted.count >= Peer.interruptedCountMax, let (oldest, _) = interrupted.first {
          core.peers[application]?.arriving[oldest] = nil
        }
      case .withdrawn(let id): withdrawn(id, application, &core)
      case .resultUnwanted(let id): resultUnwanted(id, application, core)
      case .acknowledged(let floor, let incarnation):
        acknowledged(floor, incarnation, application, &core)

      case .inquired(let request): answerInquiry(request, application, &core)
      case .standing(let request, let isAwaited): standing(request, isAwaited, application, &core)
      case .requestEnded(let request): endedWithoutReply(request, application, &core)
      }
    }
  }

  private func send(
    _ message: WireChannelMessage, _ application: ApplicationID, _ number: ChannelNumber, _ core: inout Core
  ) {
    guard let channel = core.peers[application]?.channels[number] else { return }
    if case .deliveryProgress(let progress) = message.kind, let id = Identifier(exactly: progress.id),
      let stream = core.peers[application]?.arriving[id]?.stream, stream.channel == number
    {
      // Before the sender hears of it.
      channel.bulk.raiseReceivingCredit(stream.number, to: progress.credit)
    }
    send([message], application, number, core)
  }

  /// One write for all that is said meanwhile.
  private func acknowledged(
    _ floor: UInt64, _ incarnation: Identifier, _ application: ApplicationID, _ core: inout Core
  ) {
    guard let known = core.peers[application]?.acknowledged, known.count < Peer.acknowledgedCountMax else {
      return
    }
    core.peers[application]?.acknowledged[incarnation] = max(floor, known[incarnation] ?? 0)
    guard known.isEmpty else { return }
    fileQueue.async {
      let floors = self.core.performAndWait { core in
        defer { core.peers[application]?.acknowledged = [:] }
        return core.peers[application]?.acknowledged ?? [:]
      }
      for (incarnation, floor) in floors {
        try? self.container.store.raiseDeliveryFloor(
          sender: application.text, incarnation: incarnation, to: floor)
      }
    }
  }

  // MARK: Channels for deliveries

  private static let retryPauseMin: UInt64 = 100
  private static let retryPauseMax: UInt64 = 10_000
  /// While the receiver's key is not trusted.
  private static let heldPause: UInt64 = 300_000

  private func connectForDeliveries(to application: ApplicationID, _ core: inout Core) {
    guard let peer = core.peers[application], peer.channels.isEmpty, !peer.isDialling else { return }
    if let retryAt = peer.retryAt, Self.now < retryAt { return }
    core.peers[application]?.retryAt = nil
    dial(application, &core)
  }

  /// There is no channel to the app: what waits in the outbox goes on waiting, unless it cannot help.
  func deliveriesCannotReach(_ application: ApplicationID, _ error: ServicesError, _ core: inout Core) {
    guard let peer = core.peers[application] else { return }
    step(application, &core) { $0.channelRefused() }
    let pause = min(max(peer.retryPause, Self.retryPauseMin), Self.retryPauseMax)
    let retryAt = Self.now + (error.code == .peerKeyChanged ? Self.heldPause : pause)
    core.peers[application]?.retryAt = retryAt
    core.wake(at: retryAt)
    core.peers[application]?.retryPause = min(2 * pause, Self.retryPauseMax)
    let (isFinal, endsNew): (Bool, Bool)
    switch error.code {
    case .notAllowed, .enterpriseUserNotMatch: (isFinal, endsNew) = (true, true)
    case .applicationNotFound, .peerKeyChanged: (isFinal, endsNew) = (false, true)
    default: (isFinal, endsNew) = (false, false)
    }
    for (id, delivery) in peer.outgoing {
      let isNew = delivery.request.flatMap { peer.sent[$0] }?.isAccepted == false && !delivery.isReply
      guard isFinal || isNew && endsNew else {
        sent(of: id, application, core)?.accept()
        continue
      }
      core.peers[application]?.outgoing[id]?.failure = error
      step(application, &core) { $0.cancel(id) }
    }
  }

  /// A new message is for an app one of whose keys is not trusted: its sender hears at once whether that
  /// is still so.
  func endHold(of application: ApplicationID, _ core: inout Core) {
    guard let retryAt = core.peers[application]?.retryAt, retryAt > Self.now + Self.retryPauseMax else {
      return
    }
    core.peers[application]?.retryAt = nil
  }

  func channelBegan(
    _ hello: WireChannelHello, _ application: ApplicationID, _ number: ChannelNumber, _ core: inout Core
  ) {
    core.peers[application]?.channels[number]?.bulk.allowSlots(Int(hello.slots))
    core.peers[application]?.retryAt = nil
    core.peers[application]?.retryPause = 0
    core.peers[application]?.channels[number]?.lastDelivered = Self.now
    // They are on their way, however long that takes.
    for sent in core.peers[application]?.sent.values ?? [:].values where sent.isDelivery { sent.accept() }
    step(application, &core) {
      $0.channelOpened(
        number, frameByteCountMax: Int(hello.frameByteCount), attachmentCountMax: hello.attachments)
    }
    // What the other process knows of requests that were delivered.
    for (id, sent) in core.peers[application]?.sent ?? [:] where sent.isDelivery && sent.status == .delivered
    {
      step(application, &core) { $0.inquire(id) }
    }
  }

  func tickDeliveries(_ application: ApplicationID, _ now: UInt64, _ core: inout Core) {
    guard let peer = core.peers[application] else { return }
    if peer.channels.isEmpty, !peer.isDialling, now >= peer.retryAt ?? 0 {
      if peer.deliveries.waitsForChannel {
        core.peers[application]?.retryAt = nil
        // Nobody dials, whatever the state machine was told: a channel that the peer had dialled may have ended before it began.
        step(application, &core) { $0.channelRefused() + $0.retry() }
      } else if peer.awaitsDeliveredReplies {
        connectForDeliveries(to: application, &core)
      }
    }
    guard !peer.deliveries.isIdle else { return }
    for channel in peer.channels.values
    where channel.hasBegun && now >= channel.lastDelivered + options.deliveryIdleTime {
      channel.lane.close(.timedOut, detail: "delivery idle time")
    }
  }
}
