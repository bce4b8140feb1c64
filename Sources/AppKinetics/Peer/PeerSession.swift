import ContainerStore
import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives
import UnixSockets

/// What is under way with one other app: the channels to it, and the requests of this app that go over them.
///
/// What it asks of this app is in ``requests``; messages with files are in ``deliveries``.
final class PeerSession {
  struct Channel {
    let lane: ControlLane
    let bulk: BulkLane
    let ticket: Data
    /// The other app's key, as it was introduced.
    let peerKey: Data
    /// Began because this app wanted it.
    let isDialled: Bool
    var isOpen = false
    /// The other side's `Hello` was taken.
    var hasBegun = false
    var lastUsed: UInt64
    /// When something of a delivery came last, or the channel began.
    var lastDelivered: UInt64 = 0
  }

  unowned let core: Core
  let application: ApplicationID
  /// Messages without files.
  var exchange: Exchange
  private(set) var channels: [ChannelNumber: Channel] = [:]
  /// Requests of this app.
  var sent: [Identifier: SentRequest] = [:]
  private(set) lazy var requests = PeerRequests(self)
  private(set) lazy var deliveries = PeerDeliveries(self)
  /// The number of the sandbox that the app runs in, as it was introduced last; 0 for none.
  private(set) var sandbox: UInt64 = 0
  /// The fingerprint of the key that the other app has proved last.
  private(set) var fingerprint: Data?
  /// The turn of the threads that read its channels, and of the values that come over them; apps of a sandbox share one.
  private(set) var readerTurn = ReaderTurn()
  /// The values of the messages that are being received.
  private(set) var values = ReadValues()
  /// What this app keeps for it, while it is in a sandbox.
  private var charge = SandboxCharges.Charge()
  /// When the app heard last that a container was put back, and that messages are missing since.
  private var toldRollbacks: [Rollback.Side: (any: UInt64, missing: UInt64)] = [:]
  /// The broker was asked for a channel, and it has not begun yet.
  private(set) var isDialling = false
  /// The ticket of the last introduction that this app asked for.
  private var introduced: Data?
  /// Questions of the broker for a channel that have no answer yet, and the introductions that came meanwhile: their sockets may come later.
  private var openDialCount = 0
  private var askedFor: [Data] = []
  private static let askedForCountMax = 4
  /// The other app has to be started or unlocked first.
  private(set) var dialWait: WireWaiting.Reason?
  /// Requests since the broker waits for the unlocking: another *unlock time* is theirs.
  private var sentWhileLocked: Set<Identifier> = []

  init(_ application: ApplicationID, _ core: Core) {
    self.application = application
    self.core = core
    let runtime = core.runtime
    exchange = Exchange(
      ownAppID: runtime.appID, peerAppID: application.text, process: runtime.process,
      limits: runtime.options.exchangeLimits)
  }

  var runtime: Runtime { core.runtime }
  var outbox: PeerOutbox { deliveries.outbox }
  var inbox: PeerInbox { deliveries.inbox }

  /// Nothing is under way.
  var isIdle: Bool { exchange.isIdle && sent.isEmpty && requests.isIdle && deliveries.isIdle }

  /// Nothing is under way that needs time: requests wait for replies that a delivery brings, on either side.
  private var isQuiet: Bool {
    exchange.isIdle && deliveries.isIdle && requests.isQuiet && sent.values.allSatisfy(\.awaitsDelivery)
  }

  /// A request between the two apps is under way, in either direction, and has no answer yet; those that are kept are not counted.
  var hasOpenRequest: Bool { !sent.isEmpty || requests.hasUnanswered }

  var isConnected: Bool { exchange.openChannelCount > 0 }

  /// There is a channel, or the other app is being started or unlocked: a request was taken.
  var isOnItsWay: Bool { dialWait != nil || isConnected }

  // MARK: Dialling

  func dial() {
    guard !isDialling else { return }
    isDialling = true
    let application = application
    openDialCount += 1
    core.broker.ask(.connect(.with { $0.appID = application.text })) { core, result in
      guard let peer = core.peers[application] else { return }
      peer.openDialCount -= 1
      switch result {
      case .failure(let error):
        // At once this is a rule's word.
        peer.cannotReach(error, isLocked: error.code == .notAllowed && peer.dialWait == .unlock)
      case .success(let answer):
        // The introduction came before; its channel may have ended already.
        guard peer.introduced != answer.introduced.ticket else { return }
        peer.cannotReach(ServicesError(.connectionLost, detail: "no introduction came of the broker"))
      }
    }
  }

  /// The other app has to be started or unlocked: that may take its time, and the request was taken.
  func dialWaits(for reason: WireWaiting.Reason) {
    for request in sent.values { request.accept() }
    dialWait = reason
    if reason == .unlock { preferWaiting() }
    deliveries.dialWaits(isLocked: reason == .unlock)
  }

  /// What is not delivered begins to wait until the other app is unlocked or resumed.
  private func preferWaiting() {
    for request in sent.values where request.status == .waiting { prefer(request, isWaiting: true) }
  }

  private func endDialWait() {
    dialWait = nil
    sentWhileLocked = []
  }

  /// A request waits for a channel.
  func wasQueued(_ id: Identifier) {
    if dialWait == .unlock { sentWhileLocked.insert(id) }
  }

  func wasIntroduced(_ ticket: Data) {
    introduced = ticket
    if openDialCount > 0 { askedFor = askedFor.suffix(Self.askedForCountMax - 1) + [ticket] }
  }

  /// `isLocked` says that the other app was not unlocked in time.
  func cannotReach(_ error: ServicesError, isLocked: Bool = false) {
    let kept = isLocked ? sentWhileLocked : []
    endDialWait()
    isDialling = false
    deliveries.cannotReach(error, isLocked: isLocked)
    act(
      exchange.channelRefused(
        .with {
          $0.error = UInt32(error.code.rawValue)
          $0.detail = error.detail ?? ""
        }, besides: kept, now: runtime.now))
    // Those with files wait: others were refused.
    if error.code == .processSuspended { preferWaiting() }
  }

  // MARK: Charging

  /// An app of a sandbox has what the others of it leave.
  func updateCharge() {
    let waiting = outbox.waitingReplyByteCount
    var room = SandboxCharges.Charge(
      requestByteCount: exchange.limits.requestByteCountMax,
      replyByteCount: exchange.limits.keptReplyByteCountMax)
    if sandbox != 0 {
      let now = SandboxCharges.Charge(
        requestByteCount: exchange.keptRequestByteCount,
        replyByteCount: exchange.keptReplyByteCount + waiting, channelCount: channels.count,
        offerByteCount: heldByteCount)
      core.charges.change(sandbox, from: charge, to: now)
      charge = now
      room = core.charges.room(in: sandbox, own: now)
    }
    exchange.limitKept(
      replyByteCount: room.replyByteCount - waiting, requestByteCount: room.requestByteCount)
  }

  func setSandbox(_ number: UInt64) {
    guard number != sandbox else { return }
    core.charges.change(sandbox, from: charge, to: SandboxCharges.Charge())
    charge = SandboxCharges.Charge()
    sandbox = number
    if number != 0 { core.disk.join(application.text, number) }
    readerTurn =
      number == 0 ? ReaderTurn() : core.peer(ofSandbox: number, besides: self)?.readerTurn ?? ReaderTurn()
    let limits = exchange.limits
    exchange.limitQueued(
      byteCount: number == 0 ? limits.queuedByteCountMax : SandboxCharges.queuedByteCountMax,
      messageCount: number == 0
        ? limits.fullChannelMessageCountMax : SandboxCharges.fullChannelMessageCountMax)
    updateCharge()
    inbox.room.goOn()
  }

  /// A lane to an app in a sandbox is full earlier. The most that may wait is the same, so that any one message fits.
  private var laneLimits: LaneLimits {
    var limits = LaneLimits()
    guard sandbox != 0 else { return limits }
    limits.queuedFactorMax *= limits.queuedByteCountMax / SandboxCharges.queuedByteCountMax
    limits.queuedByteCountMax = SandboxCharges.queuedByteCountMax
    return limits
  }

  /// Offers of this app, and its messages whose handlers have not returned, hold so many bytes.
  private var heldByteCount: Int {
    inbox.charges.heldByteCount + core.messages.heldByteCounts[application, default: 0]
  }

  /// The bytes of offers and their lists that may be held for this app beside those that are: at most half of what is left by
  /// those that do not share a sandbox with it, so that nobody takes all.
  var offerByteCountLeft: Int {
    let own = heldByteCount
    guard sandbox != 0 else {
      return (Core.heldOfferByteCountMax - core.heldOfferByteCount + own) / 2 - own
    }
    let ofSandbox = core.charges[sandbox].offerByteCount
    let half = (Core.heldOfferByteCountMax - core.heldOfferByteCount + ofSandbox) / 2
    return min(half, core.charges.limit.offerByteCount) - ofSandbox
  }

  /// The same, if nothing were held for anybody: what an app may hold for one delivery.
  var offerByteCountMaxAlone: Int {
    let half = Core.heldOfferByteCountMax / 2
    return sandbox == 0 ? half : min(half, core.charges.limit.offerByteCount)
  }

  /// Whether another channel from this app is taken.
  private var mayOpenAnother: Bool {
    channels.count < Self.channelCountMax
      && core.peers.values.reduce(0, { $0 + $1.channels.count }) < Self.allChannelCountMax
      && (sandbox == 0 || core.charges.room(in: sandbox, own: charge).channelCount > channels.count)
  }

  // MARK: Channels

  /// Channels with one app, and with all, of which no more are accepted.
  private static let channelCountMax = ExchangeLimits().channelCountMax
  private static let allChannelCountMax = 1024

  /// Takes over the sockets.
  func open(_ introduction: WireIntroduction, _ control: Int32, _ bulk: Int32) {
    let isDialled = introduction.role == .dialler
    let user = runtime.application.activationUser
    guard introduction.activationUser.utf8.elementsEqual(user.utf8) else {
      BrokerSession.closeAll([control, bulk])
      if isDialled { cannotReach(ServicesError(.enterpriseUserNotMatch)) }
      return
    }
    setSandbox(introduction.origin)
    // A broker may say that this app has asked for what it did not ask for.
    let isAskedFor = isDialled && askedFor.contains(introduction.ticket)
    askedFor.removeAll { $0 == introduction.ticket }
    guard isAskedFor || mayOpenAnother else { return BrokerSession.closeAll([control, bulk]) }
    let ticket = introduction.ticket
    let (own, other) = ((runtime.appID, user), (application.text, introduction.activationUser))
    let prologue = Prologue.channel(
      ticket: ticket, dialler: isDialled ? own : other, acceptor: isDialled ? other : own)
    let number = core.nextChannel()
    do {
      let lane = try ControlLane.open(
        descriptor: control,
        sealing: .channel(
          isDialler: isDialled, own: core.identity.key, peer: introduction.publicKey, prologue: prologue),
        limits: laneLimits, events: events(of: number))
      channels[number] = Channel(
        lane: lane, bulk: bulkLane(bulk, lane, number), ticket: ticket, peerKey: introduction.publicKey,
        isDialled: isAskedFor, lastUsed: runtime.now)
      updateCharge()
    } catch {
      BrokerSession.closeAll([bulk])
      runtime.logger.error("no channel", metadata: ["app": "\(application)", "error": "\(error)"])
      if isDialled {
        // A key that is none, or too many open files.
        let code: ServicesError.Code = error is SocketError ? .connectionLost : .certificateNotFound
        cannotReach(ServicesError(code, detail: "\(error)"))
      }
    }
  }

  private func events(of number: ChannelNumber) -> LaneEvents<WireChannelMessage> {
    let (runtime, application, turn) = (runtime, application, readerTurn)
    return LaneEvents(
      opened: { _ in
        runtime.perform(with: application) { $0.opened(number) }
      },
      // No lane of this app or its sandbox is read on before these messages were handled, whether or not they need an answer.
      turn: LaneTurn(begin: turn.begin, pass: turn.end),
      received: { lane, messages in
        let values = ReadValues(messages)
        runtime.perform { core in
          core.peers[application]?.received(messages, values, on: number)
          // This thread may go on with work for others before the event is over.
          lane.flush()
          turn.end()
        }
      },
      isFull: { _, isFull in
        runtime.perform(with: application) { $0.act($0.exchange.channelIsFull(number, isFull)) }
      },
      closed: { _, end in
        runtime.perform(with: application) { $0.closed(number, end) }
      })
  }

  private func bulkLane(_ descriptor: Int32, _ lane: ControlLane, _ number: ChannelNumber) -> BulkLane {
    let (runtime, application) = (runtime, application)
    return BulkLane(
      descriptor: descriptor,
      events: BulkEvents(
        sent: { stream, error in
          runtime.perform(with: application) { $0.outbox.streamSent(stream, error, on: number) }
        },
        received: { stream, error in
          runtime.perform(with: application) { $0.inbox.streamReceived(stream, error, on: number) }
        },
        // The two lanes end together. Where it is the peer that ended this one, what it said last on the other may not have been read yet.
        failed: { [weak lane, workQueue = runtime.workQueue] fault, detail in
          guard fault == .connectionLost || fault == .noError else {
            lane?.close(fault, detail: detail)
            return
          }
          workQueue.asyncAfter(deadline: .now() + Self.lastWordsTime) { [weak lane] in
            lane?.close(.noError, detail: detail)
          }
        }), slotCountMax: runtime.options.exchangeLimits.slotCountMax, budget: runtime.slotBudget)
  }

  /// As long as a lane lingers for its peer.
  private static let lastWordsTime = DispatchTimeInterval.seconds(1)

  private func opened(_ number: ChannelNumber) {
    // Before anything is said: the peer hears why not, and nothing else.
    guard let channel = channels[number], core.keys.mayUse(channel, application) else { return }
    channels[number]?.isOpen = true
    endDialWait()
    isDialling = false
    act(exchange.channelOpened(number, ticket: channel.ticket, now: runtime.now))
  }

  private func received(_ messages: [WireChannelMessage], _ values: ReadValues, on number: ChannelNumber) {
    let now = runtime.now
    self.values = values
    defer { self.values = ReadValues() }
    channels[number]?.lastUsed = now
    updateCharge()
    var outputs: [ExchangeOutput] = []
    for message in messages {
      let wasOpen = exchange.isOpen(number)
      if wasOpen, Deliveries.isDelivery(message) {
        channels[number]?.lastDelivered = now
        act(outputs + exchange.heard(on: number, now: now))
        outputs = []
        deliveries.step { $0.receive(message, on: number) }
        continue
      }
      // The first record proves the peer's key. Another channel may have been first meanwhile.
      if !wasOpen, let channel = channels[number] {
        guard core.keys.mayUse(channel, application) else { return }
        core.keys.pin(channel, application)
        fingerprint = KeyFingerprint.of(channel.peerKey)
      }
      outputs += exchange.receive(message, on: number, now: now)
      // What the exchange did not take says nothing.
      guard !wasOpen, case .hello(let hello) = message.kind, exchange.isOpen(number) else { continue }
      channels[number]?.hasBegun = true
      channels[number]?.lane.limitSentFrames(to: Int(hello.frameByteCount))
      act(outputs)
      outputs = []
      channels[number]?.bulk.allowSlots(Int(hello.slots))
      channels[number]?.lastDelivered = runtime.now
      deliveries.channelBegan(hello, number)
    }
    act(outputs)
  }

  private func closed(_ number: ChannelNumber, _ end: LaneEnd) {
    guard let channel = channels.removeValue(forKey: number) else { return }
    updateCharge()
    channel.bulk.close()
    if end.fault != .noError {
      runtime.logger.log(
        level: core.levelOfEnd(),
        "a channel ended",
        metadata: [
          "app": "\(application)", "fault": "\(end.fault)", "by": "\(end.side)",
          // What the peer said is not for a log.
          "detail": "\(end.side == .peer ? "" : end.detail)",
        ])
    }
    let isKeyChanged = end.fault == .keyChanged
    // Another channel would end in the same way, but for one that this side has ended because another key is trusted now.
    let endsDialling = isKeyChanged && !(channel.hasBegun && end.side == .here)
    var mayNotDial = false
    if channel.isOpen {
      var outputs = exchange.channelClosed(number, now: runtime.now)
      mayNotDial = endsDialling && outputs.contains(.connect)
      if mayNotDial { outputs.removeAll { $0 == .connect } }
      act(outputs)
    }
    if end.fault == .streamDamaged || end.fault == .limitExceeded {
      deliveries.pauseAfterFault()
    }
    // The end of an open channel says nothing about another one that is dialled meanwhile.
    if channel.hasBegun {
      let isOverLimit = end.fault == .limitExceeded && end.side == .peer
      deliveries.step { $0.channelClosed(number, isOverLimit: isOverLimit) }
    }
    // Else the exchange would wait for the channel that it has asked for.
    if mayNotDial && !isDialling || isKeyChanged && channel.isDialled && !channel.hasBegun {
      cannotReach(core.keys.error(of: end, application))
    } else if channel.isDialled, !channel.hasBegun {
      let error = Self.error(of: end)
      if channel.isOpen { deliveries.cannotReach(error) } else { cannotReach(error) }
    }
  }

  private static func error(of end: LaneEnd) -> ServicesError {
    switch end.fault {
    case .certificateNotFound, .enterpriseUserNotMatch, .limitExceeded, .timedOut, .notAllowed:
      ServicesError(.init(rawValue: Int32(end.fault.rawValue)), detail: end.detail)
    default: ServicesError(.connectionLost, detail: "the channel ended before it began: \(end.fault.text)")
    }
  }

  /// Something of a delivery has come over a channel.
  func wasUsed(_ number: ChannelNumber) {
    let now = runtime.now
    channels[number]?.lastUsed = now
    channels[number]?.lastDelivered = now
  }

  /// The next step of a delivery is awaited from now on.
  func awaitsDeliveries() {
    for number in channels.keys { channels[number]?.lastDelivered = runtime.now }
  }

  // MARK: Doing what the exchange wants

  func act(_ outputs: [ExchangeOutput]) {
    var batch: [WireChannelMessage] = []
    var batchChannel: ChannelNumber?
    func flush() {
      guard let number = batchChannel, !batch.isEmpty else { return }
      send(batch, on: number)
      batch = []
    }
    for output in outputs {
      if case .send(let message, let number) = output {
        if number != batchChannel { flush() }
        batchChannel = number
        batch.append(message)
        if case .request(let request) = message.kind, let id = Identifier(exactly: request.id) {
          sent[id]?.didSend()
        }
        continue
      }
      flush()
      switch output {
      case .send: break
      case .close(let number, let fault, let detail): channels[number]?.lane.close(fault, detail: detail)
      case .awaitRoom(let number): channels[number]?.lane.awaitRoom()
      case .connect: dial()
      case .consumer(let id, let event): hear(event, of: id)
      case .provider(let id, let event): requests.hear(event, of: id)
      }
    }
    flush()
    updateCharge()
    if let time = exchange.retryTime { core.wake(at: time) }
  }

  func send(_ messages: [WireChannelMessage], on number: ChannelNumber) {
    guard let lane = channels[number]?.lane else { return }
    do {
      if messages.allSatisfy(\.isUnhurried) {
        try lane.sendUnhurried(messages)
      } else {
        try lane.send(messages)
      }
    } catch {
      runtime.logger.error(
        "a message cannot be sent", metadata: ["app": "\(application)", "fault": "\(error)"])
      lane.close(.noError)
    }
  }

  // MARK: Deadlines

  /// How long a channel stays open on which nothing happens.
  private static let idleChannelTime: UInt64 = 60_000

  func tick(_ now: UInt64) {
    act(exchange.tick(now: now, isDelivering: !deliveries.isMachineIdle))
    deliveries.tick(now)
    requests.tick(now)
    guard isIdle else { return }
    for channel in channels.values where channel.isOpen && now >= channel.lastUsed + Self.idleChannelTime {
      channel.lane.close(.noError)
    }
    if channels.isEmpty, !isDialling, openDialCount == 0, inbox.expectedUntil ?? 0 <= now {
      core.forget(self)
    }
  }

  func nextDeadline(soon: UInt64) -> UInt64 {
    let asked =
      [exchange.retryTime, requests.nextDeadline, outbox.nextDeadline, inbox.nextDeadline]
      .compactMap(\.self).min() ?? .max
    if channels.isEmpty, !isDialling, exchange.isIdle, let retryAt = deliveries.retryAt {
      return min(asked, retryAt)
    }
    guard isQuiet, !isDialling, channels.values.allSatisfy(\.hasBegun) else { return min(asked, soon) }
    guard let lastUsed = channels.values.map(\.lastUsed).min() else {
      // There is this session to be forgotten, or a channel to be asked for.
      if isIdle { return min(asked, max(inbox.expectedUntil ?? 0, soon)) }
      return sent.isEmpty ? asked : min(asked, deliveries.awaitAt)
    }
    return isIdle ? min(asked, lastUsed + Self.idleChannelTime) : asked
  }

  // MARK: Ending

  /// No channel with this app may go on.
  func closeChannels() {
    for channel in channels.values { channel.lane.close(.noError) }
  }

  /// All channels end as they would if the connections broke.
  func cutChannels() -> Int {
    let count = channels.count
    for channel in channels.values { channel.lane.cut() }
    return count
  }

  /// Channels whose key is not the trusted one any more end, and those with one that is begin.
  func keyWasDecided() {
    for channel in channels.values where core.keys.standing(of: channel, application) == .changed {
      channel.lane.close(.keyChanged)
    }
    deliveries.endPause()
    core.wake(at: runtime.now)
  }

  /// The app hears of a rollback; not of each that another app may claim: then this is false, and what shows it may be told when it is
  /// found again. That messages are missing is told whatever was told before without.
  func tell(_ rollback: Rollback) -> Bool {
    var told = toldRollbacks[rollback.side] ?? (0, 0)
    let isMissing = rollback.effect != .repeats
    let last = isMissing ? told.missing : told.any
    if last > 0, runtime.now < last + Self.rollbackPause { return false }
    told.any = runtime.now
    if isMissing { told.missing = runtime.now }
    toldRollbacks[rollback.side] = told
    core.tell(rollback)
    return true
  }

  private static let rollbackPause: UInt64 = 10_000

  /// An administrator has forgotten the app: what of it waits is not handled any more.
  func wasForgotten() {
    requests.wasForgotten()
    inbox.forgetHeld()
    closeChannels()
  }

  /// This app runs, is locked or is suspended: what waited for that goes on.
  func stateChanged() {
    requests.stateChanged()
    inbox.stateChanged()
  }

  /// These services are stopped. What takes its time enters the group.
  func stop(_ parts: DispatchGroup, saysGoodbye: Bool) {
    for channel in channels.values {
      parts.enter()
      channel.lane.whenClosed { parts.leave() }
      if saysGoodbye { channel.lane.close(.noError) } else { channel.lane.cut() }
    }
    let lost = ServicesError(.connectionLost, detail: "these services were stopped")
    for request in sent.values { request.fail(.lost, request.isDelivery ? Core.stopped : lost) }
    requests.stop()
    deliveries.stop(parts)
    // Not before the other lane: the peer may take the end of one for the end of both.
    for channel in channels.values {
      channel.lane.whenClosed { channel.bulk.close() }
    }
  }
}

extension WireChannelMessage {
  fileprivate var isUnhurried: Bool {
    switch kind {
    case .accepted, .replyAccepted: true
    default: false
    }
  }
}
