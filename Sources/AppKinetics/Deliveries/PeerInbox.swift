import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages with files, and replies to them, that come of one other app into this app's container.
final class PeerInbox {
  /// One offer of a delivery. What comes of an earlier one counts for nothing.
  private struct Attempt: Sendable {
    let id: Identifier
    let delivery: IncomingDelivery
    let number: UInt64
  }

  private unowned let peer: PeerSession
  /// Also some whose channel broke, so that the app is not told of them twice.
  private(set) var arriving: [Identifier: IncomingDelivery] = [:]
  static let interruptedCountMax = 32
  /// The number of offers that came from the peer.
  private var offerCount: UInt64 = 0
  /// Deliveries that the app has refused, and whose senders may not have heard so, oldest first.
  private var unwantedIDs: [Identifier] = []
  let charges: OfferCharges
  private let checks: OfferChecks
  let room: SandboxRoom
  /// Deliveries that are being discarded.
  private var discardingCount = 0
  private let discarding = DispatchGroup()
  /// A channel with messages broke: until then they are expected to go on over another one.
  private(set) var expectedUntil: UInt64?
  /// Offers that came while the app was locked or suspended, in their order.
  private var held: [Attempt] = []
  /// Offers that the container cannot take at the moment, in their order. They are looked at again at a time, after a pause that grows.
  private var unstored: [Attempt] = []
  private var storage = StoragePause()
  /// Messages that their sender has taken back, and of which the container did not say whether the app has them.
  private var undiscarded: [(Identifier, IncomingDelivery)] = []
  /// The last incarnation of the sender that was not the newest, and the last count of messages that are not all here: the app was told.
  private var contradicted: WireIncarnation?
  private var putBack: UInt64?

  init(_ peer: PeerSession) {
    self.peer = peer
    charges = OfferCharges(peer)
    checks = OfferChecks(peer: peer)
    room = SandboxRoom(peer)
  }

  private var runtime: Runtime { peer.runtime }
  private var core: Core { peer.core }
  private var news: ArrivalNews { ArrivalNews(peer: peer) }

  var isIdle: Bool {
    discardingCount == 0 && charges.waitingCallbackCount == 0 && !arriving.values.contains { $0.isUnderWay }
  }

  /// Counts the messages with files that the app was told of.
  func add(to way: inout WireTraffic.Way) {
    for delivery in arriving.values {
      guard let transfer = delivery.transfer else { continue }
      way.add(
        byteCount: transfer.byteCount, bytesDone: transfer.bytesDone,
        waits: transfer.waitsFor != nil || !delivery.isUnderWay)
    }
  }

  /// Nothing is written to the container after this.
  func stop(_ parts: DispatchGroup) {
    parts.enter()
    discarding.notify(queue: runtime.workQueue) { parts.leave() }
    for delivery in arriving.values {
      delivery.transfer?.end(Self.lost)
      parts.enter()
      delivery.queue.async {
        delivery.suspend()
        parts.leave()
      }
    }
  }

  /// False: it is refused, or comes again.
  private func mayHold(_ byteCount: Int, of attempt: Attempt) -> Bool {
    switch charges.hold(byteCount, of: attempt.delivery, isAwaited: checks.isAwaitedReply(attempt.delivery)) {
    case .taken: return true
    case .later: putOff(attempt.id)
    case .never: refuse(attempt.id, ServicesError(.limitExceeded, detail: OfferCharges.limit))
    }
    return false
  }

  /// The channel ends over which it came, so that it comes again.
  private func putOff(_ id: Identifier, detail: String = OfferCharges.limit) {
    guard let number = peer.deliveries.channel(of: id) else { return }
    peer.channels[number]?.lane.close(.limitExceeded, detail: detail)
  }

  /// The app hears this of a delivery that does not continue; the sender may begin it again.
  private static let lost: Result<Void, ServicesError> = .failure(ServicesError(.connectionLost))

  private func remove(_ id: Identifier, _ outcome: Result<Void, ServicesError> = lost) {
    guard let delivery = arriving.removeValue(forKey: id) else { return }
    charges.change(delivery, to: 0)
    delivery.forgetContents()
    delivery.transfer?.end(outcome)
  }

  /// The other app is forgotten, and what it was interrupted in.
  func letGo() {
    for id in Array(arriving.keys) { remove(id) }
  }

  // MARK: Work on what arrives

  /// Runs `job` on the delivery's queue, where it may block; `then` goes on with what came of it while the attempt is the last one.
  private func run<R: Sendable>(
    _ attempt: Attempt, _ job: @escaping @Sendable () throws -> R,
    then: @escaping @Sendable (PeerInbox, R) -> Void,
    failed: @escaping @Sendable (PeerInbox, any Error) -> Void
  ) {
    attempt.delivery.queue.async { [runtime = runtime, application = peer.application] in
      let result = Result { try job() }
      runtime.perform(with: application) { peer in
        let inbox = peer.inbox
        guard inbox.isCurrent(attempt) else { return }
        switch result {
        case .success(let value): then(inbox, value)
        case .failure(let error): failed(inbox, error)
        }
      }
    }
  }

  private func isCurrent(_ attempt: Attempt) -> Bool {
    arriving[attempt.id] === attempt.delivery && attempt.delivery.attempt == attempt.number
  }

  private func attempt(_ id: Identifier) -> Attempt? {
    arriving[id].map { Attempt(id: id, delivery: $0, number: $0.attempt) }
  }

  // MARK: Offers

  /// What was delivered before is answered so, whatever the app thinks of it now.
  func offered(_ offer: WireOffer) {
    guard let id = Identifier(exactly: offer.id) else { return }
    let delivery = arriving[id] ?? IncomingDelivery(offer)
    offerCount += 1
    let attempt = Attempt(
      id: id, delivery: delivery, number: delivery.beginAttempt(offer, at: offerCount))
    arriving[id] = delivery
    FailPoint.offered.pass()
    // Of an earlier offer nothing is held any more.
    charges.change(delivery, to: 0)
    let byteCount = charges.byteCount(of: offer)
    guard charges.hold(byteCount, of: delivery, isAwaited: checks.isAwaitedReply(delivery)) == .taken else {
      // It may have been delivered before: it is not refused.
      remove(id)
      return putOff(id)
    }
    read(attempt)
  }

  private func read(_ attempt: Attempt) {
    guard case .request(let request)? = attempt.delivery.offer.message, request.hasParams else {
      return compare(attempt, .success(nil))
    }
    peer.readerTurn.values.async { [runtime = runtime, application = peer.application] in
      let params = request.readParams()
      runtime.perform(with: application) { peer in
        if peer.inbox.isCurrent(attempt) { peer.inbox.compare(attempt, params) }
      }
    }
  }

  /// Holds an offer against the ledger, and goes on with one that is new.
  private func compare(_ attempt: Attempt, _ params: ReadValues.Value) {
    let (offer, id) = (attempt.delivery.offer, attempt.id)
    run(attempt) { [container = runtime.container, sender = peer.application.text] in
      guard let incarnation = Incarnation(offer.incarnation) else { throw ServicesError(.invalidParams) }
      try container.store.requireNoFailure()
      let answer = try container.store.ledger(
        sender: sender, incarnation: incarnation, number: offer.number, id: id)
      try? container.store.raiseDeliveryFloor(sender: sender, incarnation: incarnation, to: offer.floor)
      return answer
    } then: { inbox, answer in
      inbox.compare(offer, with: answer, id)
      switch answer.state {
      case .unknown:
        if !answer.mayBeForgotten { attempt.delivery.clearRepeatMark() }
        guard !inbox.wasRefused(id) else { return inbox.refuse(id, Self.unwanted) }
        inbox.check(attempt, params)
      case .numberTaken:
        // It comes again under another incarnation: a reply is not lost.
        inbox.remove(id)
        inbox.peer.deliveries.step { $0.refuseNumber(id, generation: answer.generation) }
      case .delivered:
        _ = inbox.wasRefused(id)
        inbox.remove(id, .success(()))
        inbox.peer.deliveries.step { $0.committed(id) }
      }
    } failed: { inbox, error in
      if Shortage.isOfContainer(error) {
        inbox.containerFailed(error)
        inbox.waitForStorage(attempt)
      } else {
        inbox.abandon(attempt, error)
      }
    }
  }

  /// Whether one of the two containers was put back, as its numbers show.
  private func compare(_ offer: WireOffer, with answer: LedgerAnswer, _ id: Identifier) {
    if answer.state == .numberTaken {
      guard contradicted != offer.incarnation else { return }
      if peer.tell(Rollback(side: .otherApp, application: peer.application, effect: .repeats)) {
        contradicted = offer.incarnation
      }
    } else if let count = answer.arrivedCount, offer.delivered > count {
      peer.deliveries.step { $0.putBack(id, count: count) }
      guard putBack != offer.delivered else { return }
      let missing = Rollback(side: .thisApp, application: peer.application, effect: .lacks(nil))
      if peer.tell(missing) { putBack = offer.delivered }
    }
  }

  /// Logs a failure. One of the container begins the pause before it is tried again.
  private func containerFailed(_ error: any Error) {
    runtime.logger.error(
      "the container fails", metadata: ["app": "\(peer.application)", "error": "\(error)"])
    if Shortage.isOfContainer(error) { storage.begin(at: runtime.now, isFailing: true) }
  }

  /// Whether the message is there is not known: nothing is answered, and the next offer is, by the ledger.
  private func abandon(_ attempt: Attempt, _ error: any Error) {
    containerFailed(error)
    remove(attempt.id)
    peer.deliveries.step { $0.leaveOpen(attempt.id, detail: Shortage.containerDetail) }
  }

  private func check(_ attempt: Attempt, _ params: ReadValues.Value) {
    do throws(ServicesError) {
      if let refusal = peer.deliveries.refusal(of: attempt.delivery.offer) { throw refusal }
      // It comes again, and they are taken meanwhile.
      if !attempt.delivery.isReply, !peer.exchange.hasRoomForReplies {
        return putOff(attempt.id, detail: "replies that wait for the app")
      }
      try checks.require(attempt.delivery, params, among: arriving.values)
      if !attempt.delivery.isReply, let reason = core.state.waitReason {
        held.append(attempt)
        return hold(attempt, for: reason)
      }
      if storage.isFailing { waitForStorage(attempt) } else { receive(attempt) }
    } catch {
      refuse(attempt.id, error)
    }
  }

  /// The checks are made once more at the end, since much may have changed since the offer.
  private func mayCommit(_ attempt: Attempt) -> Bool {
    guard isCurrent(attempt) else { return true }
    do throws(ServicesError) {
      try checks.requireStill(attempt.delivery, among: arriving.values)
      return true
    } catch {
      refuse(attempt.id, error)
      return false
    }
  }

  /// One of the two sides does not want it any more. Nil when it was not on its way.
  private func takeUnwanted(_ id: Identifier, _ error: ServicesError) -> IncomingDelivery? {
    held.removeAll { $0.id == id }
    unstored.removeAll { $0.id == id }
    let delivery = arriving.removeValue(forKey: id)
    delivery?.isUnwanted = true
    delivery?.transfer?.end(.failure(error))
    return delivery
  }

  private func refuse(_ id: Identifier, _ error: ServicesError) {
    if let delivery = takeUnwanted(id, error) {
      discard(delivery) { _, _ in }
      replyLost(delivery, .replied, error)
    }
    peer.deliveries.step { $0.refuse(id, WireFailure(error)) }
  }

  /// Nobody gets the reply that was on its way.
  private func replyLost(
    _ delivery: IncomingDelivery, _ status: SentRequest.Status, _ error: ServicesError
  ) {
    guard case .reply? = delivery.offer.message, let request = delivery.request,
      !arriving.values.contains(where: { $0.isReply(to: request) })
    else { return }
    peer.outbox.afterDelivery(of: request) { $0.sent.removeValue(forKey: request)?.fail(status, error) }
  }

  /// Its bytes are charged until nothing of it is left; `then` hears whether it was delivered before, or why that is not known.
  private func discard(
    _ delivery: IncomingDelivery, then: @escaping @Sendable (PeerInbox, Result<Bool, any Error>) -> Void
  ) {
    delivery.stream = nil
    discardingCount += 1
    let discard = discarder(of: delivery)
    discarding.enter()
    delivery.queue.async { [runtime = runtime, application = peer.application, discarding] in
      let wasDelivered = Result { try discard() }
      discarding.leave()
      runtime.perform(with: application) { peer in
        peer.inbox.discardingCount -= 1
        peer.inbox.charges.change(delivery, to: 0)
        delivery.forgetContents()
        then(peer.inbox, wasDelivered)
      }
    }
  }

  /// Nothing is left of it, not even of what an earlier process or channel has staged. True when it was delivered before: that stays.
  private func discarder(of delivery: IncomingDelivery) -> @Sendable () throws -> Bool {
    { [store = runtime.container.store, logger = runtime.logger, application = peer.application] in
      do {
        let message = ArrivingMessage(delivery.offer, from: application)
        try store.requireNoFailure()
        let answer = try store.ledger(
          sender: message.sender, incarnation: message.incarnation, number: message.number, id: message.id)
        if answer.state != .delivered { try delivery.discard(store, message) }
        return answer.state == .delivered
      } catch {
        logger.error("what has arrived of a message cannot be removed", metadata: ["error": "\(error)"])
        throw error
      }
    }
  }

  // MARK: Locked or suspended

  /// The message waits until the app runs, however long that takes; both sides see why.
  private func hold(_ attempt: Attempt, for reason: WireDeliveryWaiting.Reason) {
    news.tellArrival(attempt.delivery, waitsFor: reason)
    core.peerWaits(peer.application)
    peer.deliveries.step { $0.hold(attempt.id, for: reason) }
  }

  /// The app runs, or waits for something else than before.
  func stateChanged() {
    if let reason = core.state.waitReason {
      for attempt in held where isCurrent(attempt) { hold(attempt, for: reason) }
      return
    }
    let waited = held
    held = []
    for attempt in waited where isCurrent(attempt) {
      peer.deliveries.step { $0.release(attempt.id) }
      read(attempt)
    }
  }

  func forgetHeld() {
    held = []
    unstored = []
  }

  // MARK: A container that takes nothing

  /// The message waits until the container takes it, however long that takes, and its sender sees why.
  private func waitForStorage(_ attempt: Attempt) {
    news.tellArrival(attempt.delivery, waitsFor: .storage)
    attempt.delivery.queue.async { attempt.delivery.suspend() }
    unstored.append(attempt)
    peer.deliveries.step { $0.hold(attempt.id, for: .storage) }
    storage.begin(at: runtime.now, isFailing: false)
  }

  /// There is no room for a message, but for others there may be.
  private func waitForRoom(_ attempt: Attempt, _ room: Room) {
    self.room.discardIdle(for: attempt.id, room)
    guard unstored.count < StoragePause.roomWaitersMax else {
      return refuse(attempt.id, ServicesError(.noSpace, detail: "the receiver's container"))
    }
    waitForStorage(attempt)
  }

  /// When the container is tried again.
  var nextDeadline: UInt64? { storage.end }

  func tick(_ now: UInt64) {
    guard storage.isOver(now) else { return }
    let (waited, withdrawn) = (unstored, undiscarded)
    (unstored, undiscarded) = ([], [])
    for (id, delivery) in withdrawn { discardWithdrawn(id, delivery) }
    for attempt in waited where isCurrent(attempt) {
      peer.deliveries.step { $0.release(attempt.id) }
      read(attempt)
    }
  }

  // MARK: Receiving

  private func receive(_ attempt: Attempt) {
    room.whenCounted { [unowned self] in if isCurrent(attempt) { begin(attempt) } }
  }

  private func begin(_ attempt: Attempt) {
    let delivery = attempt.delivery
    let list = listing(attempt)
    run(attempt) {
      [store = runtime.container.store, application = peer.application, mayDiscard = peer.sandbox == 0] in
      let room = try delivery.begin(store, from: application, mayDiscard: mayDiscard)
      let known = try delivery.addOfferedFiles()
      return (room: room, list: known.map(List.known) ?? .complete(list()))
    } then: { inbox, begun in
      guard inbox.room.take(begun.room, for: attempt.delivery) else {
        return inbox.waitForRoom(attempt, begun.room)
      }
      switch begun.list {
      case .known(let fileCount):
        inbox.news.tellBeginning(of: attempt.delivery)
        inbox.peer.deliveries.step { $0.wantPages(attempt.id, from: fileCount) }
      case .complete(let listed?): inbox.accept(attempt, listed)
      case .complete(nil): break
      }
    } failed: { inbox, error in
      // The offer has no answer yet, so that it may wait.
      if let error = error as? NoRoom {
        inbox.runtime.logger.notice(
          "no room for a message", metadata: ["app": "\(inbox.peer.application)", "room": "\(error.room)"])
        inbox.waitForRoom(attempt, error.room)
      } else if Shortage.isOfContainer(error) {
        inbox.containerFailed(error)
        inbox.waitForStorage(attempt)
      } else {
        inbox.failed(attempt, error)
      }
    }
  }

  /// The part of the list of files that is known after an offer.
  private enum List {
    /// So many, and others are missing.
    case known(fileCount: UInt64)
    /// Every file has its place; nil when they were let go of.
    case complete(Listed?)
  }

  private func failed(_ attempt: Attempt, _ error: any Error) {
    runtime.logger.warning(
      "a message cannot be received", metadata: ["app": "\(peer.application)", "error": "\(error)"])
    guard !Shortage.isReason(of: error) else { return putOff(attempt.id, detail: Shortage.detail) }
    // The next offer waits for it.
    guard !Shortage.isOfContainer(error) else {
      storage.begin(at: runtime.now, isFailing: true)
      return putOff(attempt.id, detail: Shortage.containerDetail)
    }
    refuse(attempt.id, Shortage.refusal(for: error))
  }

  func take(_ files: [WireOfferedFile], of id: Identifier) {
    guard let attempt = attempt(id) else { return }
    guard mayHold(charges.listedByteCount(files), of: attempt) else { return }
    let list = listing(attempt)
    run(attempt) { () throws -> Listed? in
      let known = try attempt.delivery.withArrival { arrival in
        try arrival.add(files.map(ArrivingFile.init))
        return arrival.filesKnown
      }
      return known == attempt.delivery.offer.fileCount ? list() : nil
    } then: { inbox, listed in
      if let listed { inbox.accept(attempt, listed) }
    } failed: {
      $0.failed(attempt, $1)
    }
  }

  private struct Listed: Sendable {
    /// The position up to which the contents are there.
    let received: UInt64
    let folderCount: Int
  }

  /// A job for when every file has its place; it returns nil when they were let go of.
  private func listing(_ attempt: Attempt) -> @Sendable () -> Listed? {
    { [weak runtime = runtime, application = peer.application] in
      let known = attempt.delivery.withArrival { arrival in
        (
          begun: attempt.delivery.takeBegunFiles(of: arrival),
          listed: Listed(received: arrival.received, folderCount: arrival.folderCount)
        )
      }
      if let begun = known?.begun {
        runtime?.perform(with: application) { $0.inbox.tellBeginning(of: attempt, begun) }
      }
      FailPoint.listed.pass()
      return known?.listed
    }
  }

  /// With the files that had begun before. Nobody is told of them again, whatever has become of the attempt.
  private func tellBeginning(of attempt: Attempt, _ begun: [ArrivedFile]) {
    if isCurrent(attempt) { news.tellBeginning(of: attempt.delivery) }
    if attempt.delivery.isCountTold {
      news.tell(begun, of: attempt.delivery)
    } else {
      // The files follow the count, with the next attempt.
      attempt.delivery.forgetBegunFiles()
    }
  }

  private func accept(_ attempt: Attempt, _ listed: Listed) {
    guard mayHold(listed.folderCount * charges.itemByteCount, of: attempt) else { return }
    attempt.delivery.transfer?.advance(to: listed.received)
    peer.deliveries.step { $0.accept(attempt.id, from: listed.received, key: Self.streamKey()) }
    if listed.received == attempt.delivery.offer.byteCount { commit(attempt.id) }
  }

  private static func streamKey() -> Data { Data(Random.bytes(DeliveryLimits.keyByteCount)) }

  func expect(_ id: Identifier, _ stream: IncomingDelivery.Stream, _ key: Data) {
    guard let delivery = arriving[id] else { return }
    delivery.stream = stream
    let sink = ArrivalSink(delivery, stream) {
      [weak runtime = runtime, application = peer.application] advance in
      runtime?.perform(with: application) { peer in
        guard peer.inbox.arriving[id] === delivery else { return }
        let isCurrent = delivery.stream == stream
        if isCurrent { delivery.transfer?.advance(to: advance.received) }
        // Nobody is told of them again, whatever has become of the stream.
        peer.inbox.news.tell(advance.begun, of: delivery)
        guard isCurrent else { return }
        peer.wasUsed(stream.channel)
        peer.deliveries.step { $0.received(id, advance.received, frameCount: advance.frameCount) }
      }
    }
    peer.channels[stream.channel]?.bulk.expect(
      stream: stream.number, key: key, credit: runtime.options.deliveryLimits.creditFrameCount, sink: sink)
  }

  func endExpecting(_ id: Identifier) { arriving[id]?.stream = nil }

  /// Everything of a stream has come, or it cannot be kept.
  func streamReceived(_ stream: UInt32, _ error: (any Error)?, on number: ChannelNumber) {
    let mine = IncomingDelivery.Stream(channel: number, number: stream)
    guard let (id, delivery) = arriving.first(where: { $0.value.stream == mine }) else { return }
    delivery.stream = nil
    guard let error else { return commit(id) }
    guard let attempt = attempt(id) else { return }
    guard let damage = error as? DamagedContents else { return failed(attempt, error) }
    run(attempt) {
      delivery.withArrival(\.received)
    } then: { inbox, received in
      guard let received else { return }
      inbox.runtime.logger.warning(
        "contents do not open, and are asked for again", metadata: ["app": "\(inbox.peer.application)"])
      inbox.peer.deliveries.step {
        $0.askAgain(id, from: received, damaged: damage.position, key: Self.streamKey())
      }
    } failed: {
      $0.failed(attempt, $1)
    }
  }

  private func commit(_ id: Identifier) {
    guard peer.deliveries.beginCommit(id), let attempt = attempt(id) else { return }
    attempt.delivery.isCommitting = true
    let (runtime, application, values) = (runtime, peer.application, peer.readerTurn.values)
    attempt.delivery.queue.async {
      do {
        FailPoint.committing.pass()
        let mayCommit = runtime.performAndWait { core in
          !core.wasHeld && core.peers[application]?.inbox.mayCommit(attempt) != false
        }
        guard mayCommit else { return }
        guard let (queued, count) = try attempt.delivery.commit() else { return }
        FailPoint.committed.pass()
        values.async {
          let read = ReadMessage(queued)
          runtime.perform { core in
            // Else it comes at the next start.
            guard core.life == .running else { return }
            let peer = core.peer(application)
            peer.inbox.remove(id, .success(()))
            peer.inbox.storage.reset()
            // First, so that a cancel that came meanwhile finds whom to tell.
            core.messages.handle(read, isRedelivered: false)
            peer.deliveries.step { $0.committed(id, count: count) }
          }
        }
      } catch let taken as ArrivalNumberTaken {
        // Its sender has drawn another incarnation since it offered this, and offers it again.
        attempt.delivery.suspend()
        runtime.perform(with: application) { peer in
          guard peer.inbox.isCurrent(attempt) else { return }
          peer.inbox.remove(id)
          peer.deliveries.step { $0.refuseNumber(id, generation: taken.generation) }
        }
      } catch ContainerError.fileExists {
        // Its directory is the app's own by now, and nothing was written: it would not be another one the next time.
        runtime.perform(with: application) { peer in
          if peer.inbox.isCurrent(attempt) { peer.inbox.failed(attempt, ContainerError(.fileExists)) }
        }
      } catch {
        runtime.perform(with: application) { peer in
          if peer.inbox.isCurrent(attempt) { peer.inbox.abandon(attempt, error) }
        }
      }
    }
  }

  // MARK: The sender, or this app, does not want it any more

  /// The channel that it came over is gone: what is there is kept for another one.
  func interrupted(_ id: Identifier) {
    guard let delivery = arriving[id] else { return }
    _ = delivery.beginAttempt()
    held.removeAll { $0.delivery === delivery }
    unstored.removeAll { $0.delivery === delivery }
    delivery.queue.async { delivery.suspend() }
    charges.change(delivery, to: 0)
    expectedUntil = runtime.now + runtime.options.deliveryIdleTime.milliseconds
    let interrupted = arriving.filter { !$0.value.isUnderWay }
    guard interrupted.count > Self.interruptedCountMax,
      // The message that was offered longest ago is the least likely to go on.
      let oldest = interrupted.min(by: { $0.value.lastOffer < $1.value.lastOffer })
    else { return }
    remove(oldest.key)
  }

  func withdrawn(_ id: Identifier) {
    let error = ServicesError(.cancelled, detail: "its sender took it back, or could not read it")
    guard let delivery = takeUnwanted(id, error) else {
      return peer.deliveries.step { $0.discarded(id) }
    }
    discardWithdrawn(id, delivery)
  }

  private func discardWithdrawn(_ id: Identifier, _ delivery: IncomingDelivery) {
    discard(delivery) { inbox, result in
      switch result {
      case .success(let wasDelivered):
        if !wasDelivered { inbox.replyLost(delivery, .lost, PeerOutbox.replyLost) }
        inbox.peer.deliveries.step { wasDelivered ? $0.committed(id) : $0.discarded(id) }
      case .failure(let error): inbox.discardLater(id, delivery, error)
      }
    }
  }

  /// Whether the app has it is not known: its sender waits until the container can be asked.
  private func discardLater(_ id: Identifier, _ delivery: IncomingDelivery, _ error: any Error) {
    guard Shortage.isOfContainer(error), undiscarded.count < Self.interruptedCountMax else {
      return peer.deliveries.step { $0.leaveOpen(id, detail: Shortage.containerDetail) }
    }
    undiscarded.append((id, delivery))
    storage.begin(at: runtime.now, isFailing: false)
  }

  func isCommittingReply(to request: Identifier) -> Bool {
    arriving.values.contains { $0.request == request && $0.isCommitting }
  }

  /// False when it is there already, or was never on its way.
  func cancelReception(of request: Identifier) -> Bool {
    guard let (id, delivery) = arriving.first(where: { $0.value.request == request }), !delivery.isCommitting
    else { return false }
    // A sender that does not hear so now, hears so when it offers it again.
    unwantedIDs.append(id)
    if unwantedIDs.count > Self.interruptedCountMax { unwantedIDs.removeFirst() }
    if delivery.isUnderWay {
      refuse(id, Self.unwanted)
    } else if let delivery = takeUnwanted(id, Self.unwanted) {
      discard(delivery) { _, _ in }
    }
    return true
  }

  /// Whether the app has refused it over an earlier channel. It says so once.
  private func wasRefused(_ id: Identifier) -> Bool {
    guard let index = unwantedIDs.firstIndex(of: id) else { return false }
    unwantedIDs.remove(at: index)
    return true
  }

  private static let unwanted = ServicesError(.cancelled, detail: "the receiver does not want it")
}

extension ArrivingFile {
  init(_ file: WireOfferedFile) {
    self.init(
      path: [UInt8](file.path), size: file.byteCount, modified: file.modified,
      permissions: UInt16(truncatingIfNeeded: file.permissions & 0o777))
  }
}

extension ArrivingMessage {
  /// `offer` was checked when it came.
  init(_ offer: WireOffer, from application: ApplicationID) {
    // What is kept of an offer until its message was handled.
    let message = WireOffer.with {
      $0.message = offer.message
      $0.mayBeRepeated = offer.mayBeRepeated
    }
    self.init(
      id: Identifier(offer.id), sender: application.text, incarnation: Incarnation(offer.incarnation)!,
      number: offer.number, message: (try? message.serializedBytes()) ?? [], fileCount: offer.fileCount,
      byteCount: offer.byteCount, storedByteCount: offer.storedByteCount)
  }
}
