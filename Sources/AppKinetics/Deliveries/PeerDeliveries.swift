import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files to and from one other app (DELIVERY-PROTOCOL.md, "States"): what their state machine wants done.
///
/// Those that go are in ``outbox``, those that come in ``inbox``.
final class PeerDeliveries {
  private unowned let peer: PeerSession
  private var machine: Deliveries
  let outbox: PeerOutbox
  let inbox: PeerInbox
  /// When a channel is asked for again; the pause after that. Milliseconds.
  private(set) var retryAt: UInt64?
  private var retryPause: UInt64 = 0
  /// When a channel is asked for next only because replies are awaited, and the pause after that: who replies asks for one itself, so
  /// that this one only hears earlier that a reply will not come. Milliseconds.
  private(set) var awaitAt: UInt64 = 0
  private var awaitPause = awaitPauseMin
  private static let awaitPauseMin: UInt64 = 1000
  private static let awaitPauseMax: UInt64 = 300_000
  /// The last pause after a channel that ended with a fault, since a delivery was settled.
  private var faultPause: UInt64 = 0
  /// The reason for which the other app takes no messages yet, as it was heard of last: by an offer that
  /// waits, or of the broker. Nil: it is neither locked nor suspended.
  private(set) var waitReason: WireDeliveryWaiting.Reason?
  /// Why there is no channel; nil when one has begun since.
  private var unreachable: ServicesError?
  /// What the other app said of its floors, by incarnation, and is not in the ledger yet.
  private var acknowledged: [Incarnation: UInt64] = [:]
  private static let acknowledgedCountMax = 16

  init(_ peer: PeerSession) {
    self.peer = peer
    machine = Deliveries(limits: peer.runtime.options.deliveryLimits)
    outbox = PeerOutbox(peer)
    inbox = PeerInbox(peer)
  }

  var isMachineIdle: Bool { machine.isIdle }

  /// Nothing is under way.
  var isIdle: Bool { machine.isIdle && outbox.isIdle && inbox.isIdle }

  func refusal(of offer: WireOffer) -> ServicesError? {
    machine.refusal(of: offer).map { ServicesError($0) }
  }

  func channel(of id: Identifier) -> ChannelNumber? { machine.channel(of: id) }
  func waitReason(ofSent id: Identifier) -> WireDeliveryWaiting.Reason? { machine.waitReason(ofSent: id) }
  func channel(ofSent id: Identifier) -> ChannelNumber? { machine.channel(ofSent: id) }
  func canFail(_ id: Identifier) -> Bool { machine.canFail(id) }
  func beginCommit(_ id: Identifier) -> Bool { machine.beginCommit(id) }

  func stop(_ parts: DispatchGroup) {
    outbox.stop()
    inbox.stop(parts)
  }

  // MARK: Stepping

  /// A step of the state machine, and what comes of it.
  func step(_ body: (inout Deliveries) -> [DeliveryOutput]) {
    let wasMoving = machine.isMoving
    let outputs = body(&machine)
    if machine.isMoving, !wasMoving { peer.awaitsDeliveries() }
    if machine.isConnected { waitReason = machine.waitReason }
    act(outputs)
    peer.core.messagesChanged()
  }

  private func act(_ outputs: [DeliveryOutput]) {
    for output in outputs {
      switch output {
      case .send(let message, let number): send(message, on: number)
      case .close(let number, let fault, let detail):
        peer.channels[number]?.lane.close(fault, detail: detail)
      case .connect: connect()

      case .wantsOffer(let id): outbox.provideOffer(id)
      case .wantsPage(let id, let from): outbox.providePage(id, from)
      case .beginStream(let id, let channel, let number, let key, let from, let credit, let checking):
        outbox.beginStream(
          id, OutgoingDelivery.Stream(channel: channel, number: number), key, from, credit: credit,
          checking: checking)
      case .raiseCredit(_, let channel, let number, let credit):
        peer.channels[channel]?.bulk.raiseCredit(number, to: credit)
      case .endStream(let id, let channel, let number):
        outbox.endStream(id)
        peer.channels[channel]?.bulk.stopSending(number)
      case .waiting(let id):
        if let sent = outbox.sent(of: id) { peer.prefer(sent, isWaiting: true) }
      case .accepted(let id): outbox.wasAccepted(id)
      case .progressed(let id, let received): outbox.progressed(id, received)
      case .settled(let id, let end):
        faultPause = 0
        awaitPause = Self.awaitPauseMin
        outbox.settled(id, end)
      case .delivered(let id, let incarnation, let count): outbox.delivered(id, incarnation, count)
      case .numberTaken(let id, let incarnation, let generation):
        outbox.numberTaken(id, incarnation, generation)
      case .putBack(_, let incarnation, let count, let delivered):
        outbox.putBack(incarnation, count: count, delivered: delivered)
      case .tooLate(let id): outbox.sent(of: id)?.didNotCancel()

      case .offered(let offer): inbox.offered(offer)
      case .page(let id, let files): inbox.take(files, of: id)
      case .expect(let id, let channel, let number, let key):
        inbox.expect(id, IncomingDelivery.Stream(channel: channel, number: number), key)
      case .endExpecting(let id, let channel, let number):
        inbox.endExpecting(id)
        peer.channels[channel]?.bulk.stopReceiving(number)
      case .interrupted(let id): inbox.interrupted(id)
      case .withdrawn(let id): inbox.withdrawn(id)
      case .resultUnwanted(let id): peer.requests.cancelRequested(id)
      case .acknowledged(let floor, let incarnation): wasAcknowledged(floor, incarnation)

      case .inquired(let request):
        let isAwaited = isAwaited(request)
        step { $0.standing(request, isAwaited: isAwaited) }
      case .standing(let request, let isAwaited): outbox.standing(request, isAwaited)
      case .requestEnded(let request, let isReplyLost):
        if isReplyLost { outbox.lostReply(to: request) } else { outbox.endedWithoutReply(request) }
      }
    }
  }

  private func send(_ message: WireChannelMessage, on number: ChannelNumber) {
    guard let channel = peer.channels[number] else { return }
    if case .deliveryProgress(let progress) = message.kind, let id = Identifier(exactly: progress.id),
      let stream = inbox.arriving[id]?.stream, stream.channel == number
    {
      // Before the sender hears of it.
      channel.bulk.raiseReceivingCredit(stream.number, to: progress.credit)
    }
    peer.send([message], on: number)
  }

  /// One write for all that is said meanwhile.
  private func wasAcknowledged(_ floor: UInt64, _ wire: WireIncarnation) {
    guard let incarnation = Incarnation(wire) else { return }
    let isFirst = acknowledged.isEmpty
    guard acknowledged.count < Self.acknowledgedCountMax else { return }
    acknowledged[incarnation] = max(floor, acknowledged[incarnation] ?? 0)
    guard isFirst else { return }
    let (runtime, application) = (peer.runtime, peer.application)
    runtime.fileQueue.async {
      let floors = runtime.performAndWait { $0.peers[application]?.deliveries.takeAcknowledged() ?? [:] }
      for (incarnation, floor) in floors {
        try? runtime.container.store.raiseDeliveryFloor(
          sender: application.text, incarnation: incarnation, to: floor)
      }
    }
  }

  private func takeAcknowledged() -> [Incarnation: UInt64] {
    defer { acknowledged = [:] }
    return acknowledged
  }

  /// Whether a reply to a delivered request may still come.
  func isAwaited(_ request: Identifier) -> Bool {
    peer.requests.incoming[request] != nil || outbox.answers(request)
      || peer.core.messages.isWaiting(request, from: peer.application)
      || peer.core.messages.isAnswerable(request, from: peer.application)
  }

  // MARK: Channels for deliveries

  private static let retryPauseMin: UInt64 = 100
  private static let retryPauseMax: UInt64 = 10_000
  /// While the receiver's key is not trusted.
  private static let heldPause: UInt64 = 300_000

  private func connect() {
    guard peer.channels.isEmpty, !peer.isDialling else { return }
    if let retryAt, peer.runtime.now < retryAt { return }
    retryAt = nil
    peer.dial()
  }

  /// The broker waits with an introduction: until the app is unlocked, or until it has started.
  func dialWaits(isLocked: Bool) {
    waitReason = isLocked ? .unlock : nil
    peer.core.messagesChanged()
  }

  /// There is no channel to the app: what waits in the outbox goes on waiting, unless it cannot help.
  /// `isLocked` says that the app is there, and was not unlocked in time.
  func cannotReach(_ error: ServicesError, isLocked: Bool = false) {
    unreachable = error
    switch error.code {
    // These say nothing of the other app.
    case .brokerUnavailable, .connectionLost, .timedOut: break
    case .processSuspended: waitReason = .resumption
    default: waitReason = isLocked ? .unlock : nil
    }
    step { $0.channelRefused() }
    let pause = min(max(retryPause, Self.retryPauseMin), Self.retryPauseMax)
    let next = peer.runtime.now + (error.code == .peerKeyChanged ? Self.heldPause : pause)
    retryAt = next
    peer.core.wake(at: next)
    retryPause = min(2 * pause, Self.retryPauseMax)
    let (isFinal, endsNew): (Bool, Bool)
    switch error.code {
    case .notAllowed where isLocked: (isFinal, endsNew) = (false, false)
    case .notAllowed, .enterpriseUserNotMatch: (isFinal, endsNew) = (true, true)
    case .applicationNotFound, .peerKeyChanged: (isFinal, endsNew) = (false, true)
    default: (isFinal, endsNew) = (false, false)
    }
    outbox.cannotReach(error, isFinal: isFinal, endsNew: endsNew)
  }

  /// A channel ends because contents do not open, or because the other app has no room for more offers. It may be so over the next one
  /// too, which is asked for after a pause that grows.
  func pauseAfterFault() {
    faultPause = min(max(2 * faultPause, Self.retryPauseMin), Self.retryPauseMax)
    let next = peer.runtime.now + faultPause
    retryAt = next
    peer.core.wake(at: next)
  }

  /// The next channel is asked for without a pause.
  func endPause() {
    retryAt = nil
    retryPause = 0
  }

  /// A new message is for an app one of whose keys is not trusted: its sender hears at once whether that
  /// is still so.
  func endHold() {
    if let retryAt, retryAt > peer.runtime.now + Self.retryPauseMax { self.retryAt = nil }
  }

  private static let toldWhenOverdue: Set<ServicesError.Code> = [
    .applicationNotFound, .peerKeyChanged, .certificateNotFound, .brokerUnavailable, .approvalPending,
  ]

  /// What a message ends with whose time limit is over: the last that was heard of its receiver.
  var overdue: ServicesError {
    switch waitReason {
    case .unlock?: ServicesError(.notAllowed, detail: "time limit of the message: the other app is locked")
    case .storage?:
      ServicesError(.noSpace, detail: "time limit of the message: the other app's container takes nothing")
    case .some:
      ServicesError(.processSuspended, detail: "time limit of the message: the other app is suspended")
    case nil:
      ServicesError(
        unreachable.map(\.code).flatMap { Self.toldWhenOverdue.contains($0) ? $0 : nil } ?? .cancelled,
        detail: "time limit of the message")
    }
  }

  func channelBegan(_ hello: WireChannelHello, _ number: ChannelNumber) {
    unreachable = nil
    endPause()
    // They are on their way, however long that takes.
    for sent in peer.sent.values where sent.isDelivery { sent.accept() }
    step {
      $0.channelOpened(
        number, frameByteCountMax: Int(hello.frameByteCount), attachmentCountMax: hello.attachments)
    }
    // What the other process knows of requests that were delivered.
    for (id, sent) in peer.sent where sent.awaitsDelivery {
      step { $0.inquire(id) }
    }
  }

  /// Replies to what was delivered may come.
  private func askForReplies(_ now: UInt64) {
    guard now >= awaitAt, peer.sent.values.contains(where: \.awaitsDelivery) else { return }
    awaitAt = now + awaitPause
    awaitPause = min(2 * awaitPause, Self.awaitPauseMax)
    connect()
  }

  func tick(_ now: UInt64) {
    outbox.tick()
    inbox.tick(now)
    if peer.channels.isEmpty, !peer.isDialling, now >= retryAt ?? 0 {
      if machine.waitsForChannel {
        retryAt = nil
        // Nobody dials, whatever the state machine was told: a channel that the peer had dialled may have ended before it began.
        step { $0.channelRefused() + $0.retry() }
      } else {
        retryAt = nil
        askForReplies(now)
      }
    }
    guard machine.isMoving else { return }
    let idleTime = peer.runtime.options.deliveryIdleTime.milliseconds
    for channel in peer.channels.values where channel.hasBegun && now >= channel.lastDelivered + idleTime {
      channel.lane.close(.timedOut, detail: "delivery idle time")
    }
  }
}
