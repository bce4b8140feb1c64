import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import Logging
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// What changes in an app's runtime, touched by one piece of work at a time (``Runtime/perform(_:)``).
///
/// Each part of it keeps its own state: ``BrokerSession`` the connection to the broker, a ``PeerSession`` what is under way with one
/// other app. Neither these nor the core are `Sendable`, so the compiler keeps work from taking them elsewhere.
final class Core {
  enum Life: Sendable {
    case new, running
    /// Nothing is done any more for other apps, and nothing is said to them.
    case held
    case stopped
  }

  /// What earlier processes left in the container.
  struct Left: Sendable {
    struct Outgoing: Sendable {
      var entry: OutboxEntry
      /// What is known of the message: nil for one that cannot be read, which ends when it is offered.
      var request: Identifier?
      var isReply = false
      /// It is in milliseconds, by the wall clock.
      var timeLimit: UInt64?
    }

    var outbox: [Outgoing]
    var queue: MessageQueue
    /// Those of the queue that wait for their handlers.
    var unhandled: [ReadMessage]
  }

  unowned let runtime: Runtime
  private(set) var life = Life.new
  /// These services were stopped, and the group is done when everything of theirs has ended.
  private(set) var stopping: DispatchGroup?
  /// No handler begins any more: these services stop when those that run have returned.
  var isStopping: Bool { runtime.handlers.isClosed }
  var wakeUp: WakeUp
  private(set) var identity: Identity
  private(set) var state = ApplicationState.running
  private(set) var peers: [ApplicationID: PeerSession] = [:]
  var services = OfferedServices()
  /// What the apps of sandboxes make this app keep.
  var charges = SandboxCharges()
  /// The disk that they have.
  var disk = SandboxDisk()
  /// Of offers under way, their lists of files, messages whose handlers have not returned, and callbacks that wait, of all apps together.
  var heldOfferByteCount = 0
  static let heldOfferByteCountMax = 256 << 20
  private(set) lazy var broker = BrokerSession(self, presence)
  private(set) lazy var keys = PeerKeys(self, pins)
  private(set) lazy var messages = DeliveredMessages(self)
  var outboxEndHandler: OutboxEndHandler?
  var rollbackWatchers = Watchers<Rollback>()
  var arrivalWatchers = Watchers<IncomingTransfer>()
  /// Of messages with files, whatever it is that has changed.
  var messageWatchers = Watchers<Void>()
  /// The streams that listen to errors of the connection to the broker.
  var connectionWatchers = Watchers<ServicesError?>()
  /// The apps that have wanted something of this one since it was locked or suspended; empty while it runs.
  private(set) var waitingPeers: Set<ApplicationID> = [] {
    didSet { waitingPeerWatchers.yield(waitingPeers) }
  }
  var waitingPeerWatchers = Watchers<Set<ApplicationID>>()
  static let waitingPeerCountMax = 1_024
  private let pins: PeerPins
  private let presence: Presence?
  /// Deliveries of earlier processes that are not to go on, and who waits for their ends.
  private var takenBack: [Identifier: [@Sendable (SentDeliveryEnd?) -> Void]] = [:]
  /// Such messages that nobody was offered, which leave the outbox at once, and who waits for that. A start may have read the
  /// outbox before.
  private var leavingBeforeStart: [Identifier: [@Sendable (SentDeliveryEnd?) -> Void]] = [:]
  private var settledBeforeStart: Set<Identifier> = []
  /// Ids of messages that are being written into the outbox, with the callbacks of those who take them back meanwhile.
  private var enqueuing: [Identifier: [@Sendable (SentDeliveryEnd?) -> Void]] = [:]
  private var lastChannel: UInt64 = 0
  /// Until then the ends of channels are no warnings.
  private var quietUntil: UInt64 = 0
  private var lastWatcher: UInt64 = 0

  init(
    _ runtime: Runtime, _ identity: Identity, _ pins: PeerPins, _ presence: Presence?,
    _ clock: RuntimeClock
  ) {
    self.runtime = runtime
    self.identity = identity
    self.pins = pins
    self.presence = presence
    wakeUp = WakeUp(clock)
  }

  // MARK: Life

  /// `starter` is called when the app is registered, or will not be.
  func start(_ left: Left?, _ starter: @escaping BrokerSession.Starter) {
    guard life == .new || life == .running else {
      return starter(
        .failure(
          ServicesError(
            .general,
            detail: "these services were stopped, and do not start again: make new ones of the container")))
    }
    guard !runtime.options.isSimulation else { return starter(.failure(Self.simulation)) }
    guard broker.mustConnect(for: starter) else { return }
    guard life == .new else { return broker.connect() }
    life = .running
    if let left {
      messages.resume(left.queue, left.unhandled)
      resumeOutbox(left)
    }
    runtime.startClock()
    broker.connect()
  }

  /// Nothing is committed any more, also when they have stopped since.
  private(set) var wasHeld = false

  /// From now on nothing that others sent is committed, handled, answered or refused. The connection to the broker stays. What is being
  /// written enters the group.
  func hold(_ parts: DispatchGroup) {
    guard life == .running || life == .new else { return }
    (life, wasHeld) = (.held, true)
    endPeers(parts, saysGoodbye: false)
  }

  private func endPeers(_ parts: DispatchGroup, saysGoodbye: Bool) {
    runtime.stopClock()
    for peer in peers.values { peer.stop(parts, saysGoodbye: saysGoodbye) }
    peers = [:]
    messages.stop()
  }

  /// What takes its time enters the group. False when it was stopped before.
  func stop(_ parts: DispatchGroup) -> Bool {
    guard life != .stopped else { return false }
    life = .stopped
    stopping = parts
    for ended in takenBack.values.joined() { ended(nil) }
    takenBack = [:]
    endPeers(parts, saysGoodbye: true)
    broker.stop(parts)
    keys.stop()
    identity.pool.shut()
    rollbackWatchers.finish()
    arrivalWatchers.finish()
    messageWatchers.finish()
    connectionWatchers.finish()
    waitingPeerWatchers.finish()
    return true
  }

  /// Why nothing can be sent; nil when it can.
  var notRunning: ServicesError? {
    guard life != .running else { return nil }
    guard !runtime.options.isSimulation else { return Self.simulation }
    return broker.lastFailure ?? ServicesError(.brokerUnavailable, detail: "these services are not started")
  }

  static let simulation = ServicesError(.notAllowed, detail: "there are no services in simulation")

  static let stopped = ServicesError(
    .connectionLost, detail: "these services were stopped; what is in the outbox goes on at the next start")

  /// The broker of this key is trusted from now on.
  func trust(brokerKey: Data) { identity.brokerKey = brokerKey }

  /// What became of the app itself.
  func setState(_ state: ApplicationState) {
    self.state = state
    if state == .running, !waitingPeers.isEmpty { waitingPeers = [] }
    for peer in peers.values { peer.stateChanged() }
    if state == .running, life == .running { messages.appRuns() }
  }

  /// The other app wants something of this one, which is locked or suspended.
  func peerWaits(_ application: ApplicationID) {
    guard state != .running, !waitingPeers.contains(application),
      waitingPeers.count < Self.waitingPeerCountMax
    else { return }
    waitingPeers.insert(application)
  }

  /// An administrator has forgotten the app.
  func wasForgotten(_ application: ApplicationID) {
    if waitingPeers.contains(application) { waitingPeers.remove(application) }
    broker.introductions.drop(ServicesError(.applicationNotFound)) { $0 == application }
    messages.endRequests(from: application)
    peers[application]?.wasForgotten()
  }

  /// Any app may have been forgotten. Those that may go on begin anew.
  func anyWasForgotten() {
    if !waitingPeers.isEmpty { waitingPeers = [] }
    broker.introductions.drop(ServicesError(.applicationNotFound)) { _ in true }
    for peer in peers.values { peer.closeChannels() }
  }

  /// Warned of once in a second: whoever opens channels and breaks them fills no log.
  func levelOfEnd() -> Logger.Level {
    guard runtime.now >= quietUntil else { return .debug }
    quietUntil = runtime.now + 1_000
    return .warning
  }

  func tell(_ rollback: Rollback) {
    runtime.logger.warning(
      rollback.side == .thisApp
        ? "the other app says that this app's container was put back to an older copy, or that a copy of it is in use"
        : "the other app's container was put back to an older copy, or a copy of it is in use",
      metadata: ["app": "\(rollback.application)", "effect": "\(rollback.effect)"])
    rollbackWatchers.yield(rollback)
  }

  func nextWatcher() -> UInt64 {
    lastWatcher += 1
    return lastWatcher
  }

  func nextChannel() -> ChannelNumber {
    lastChannel += 1
    return ChannelNumber(lastChannel)
  }

  // MARK: Other apps

  /// The session of an app; begins one when there is none.
  func peer(_ application: ApplicationID) -> PeerSession {
    if let peer = peers[application] { return peer }
    let peer = PeerSession(application, self)
    peers[application] = peer
    return peer
  }

  /// Where a request is answered; nil when nothing is under way with its sender, and when these services do not run.
  func requests(holding request: IncomingRequest) -> PeerRequests? {
    guard life == .running else { return nil }
    return (request.arrival == nil ? peers[request.sender] : peer(request.sender))?.requests
  }

  func peer(ofSandbox number: UInt64, besides other: PeerSession) -> PeerSession? {
    peers.values.first { $0.sandbox == number && $0 !== other }
  }

  /// Nothing is under way with it any more.
  func forget(_ peer: PeerSession) {
    guard peers[peer.application] === peer else { return }
    peer.inbox.letGo()
    peer.setSandbox(0)
    peers[peer.application] = nil
  }

  func take(_ policy: WirePolicy) {
    services.policy = policy
    let denied = waitingPeers.filter { services.access.denies($0.text, runtime.appID) }
    if !denied.isEmpty { waitingPeers.subtract(denied) }
    // Where one of the two may call, the channel goes on, and the provider's side refuses what the other one sends.
    func isDenied(_ application: ApplicationID) -> Bool {
      services.access.denies(runtime.appID, application.text)
        && services.access.denies(application.text, runtime.appID)
    }
    broker.introductions.drop(ServicesError(.notAllowed), where: isDenied)
    for peer in peers.values where isDenied(peer.application) { peer.closeChannels() }
  }

  /// Where the app is called for another one.
  func callbacks(for application: ApplicationID) -> DispatchQueue {
    peers[application]?.requests.callbacks ?? runtime.options.callbackQueue ?? .global()
  }

  // MARK: Sending

  func submit(_ sent: SentRequest) {
    if let notRunning { return sent.fail(.refused, notRunning) }
    peer(sent.application).submit(sent)
  }

  /// The request is in the outbox.
  func enqueue(_ sent: SentRequest, _ stored: StoredMessage) {
    guard life == .running else { return sent.fail(.lost, Self.stopped) }
    peer(sent.application).enqueue(sent, stored)
  }

  /// Marks a message that is about to be written into the outbox.
  func beginEnqueuing(_ id: Identifier) { enqueuing[id] = [] }

  /// Ends that mark when the message is on its way, or could not be stored. Whoever has taken it back meanwhile goes on.
  func endEnqueuing(_ id: Identifier, for receiver: ApplicationID) {
    guard let waiting = enqueuing.removeValue(forKey: id), !waiting.isEmpty else { return }
    if let peer = peers[receiver] { return peer.outbox.takeBack(id, waiting) }
    for ended in waiting { ended(nil) }
  }

  // MARK: What earlier processes left

  private func resumeOutbox(_ left: Left) {
    defer { settledBeforeStart = [] }
    for outgoing in left.outbox {
      let entry = outgoing.entry
      guard !settledBeforeStart.contains(entry.id), leavingBeforeStart[entry.id] == nil else { continue }
      guard let application = try? ApplicationID(entry.receiver) else {
        runtime.logger.error(
          "a message in the outbox is for nobody", metadata: ["number": "\(entry.number)"])
        continue
      }
      let outbox = peer(application).outbox
      guard outbox.outgoing[entry.id] == nil else { continue }
      outbox.enqueue(
        entry, request: outgoing.request, isReply: outgoing.isReply, wasOffered: entry.mayBeOffered,
        timeLimit: outgoing.timeLimit)
      if let ended = takenBack.removeValue(forKey: entry.id) { outbox.takeBack(entry.id, ended) }
      outbox.tick()
    }
    for ended in takenBack.values.joined() { ended(nil) }
    takenBack = [:]
  }

  /// Takes back a message of the outbox; calls back with its end, or with nil for what is not on its way.
  func takeBack(
    _ entry: OutboxEntry, for receiver: ApplicationID,
    _ ended: @escaping @Sendable (SentDeliveryEnd?) -> Void
  ) {
    switch life {
    // So that it is not delivered before it is taken back.
    case .new where !entry.mayBeOffered:
      leavingBeforeStart[entry.id, default: []].append(ended)
      guard leavingBeforeStart[entry.id]?.count == 1 else { return }
      runtime.settleBeforeStart(entry.number) { core, isSettled in
        if isSettled, core.life == .new { core.settledBeforeStart.insert(entry.id) }
        let waiting = core.leavingBeforeStart.removeValue(forKey: entry.id) ?? []
        for ended in waiting { ended(isSettled ? .cancelled : nil) }
      }
    case .new: takenBack[entry.id, default: []].append(ended)
    case .running:
      // The message may be in the container already, but it is not on its way yet.
      guard enqueuing[entry.id] == nil else {
        enqueuing[entry.id]?.append(ended)
        return
      }
      if let peer = peers[receiver] { peer.outbox.takeBack(entry.id, [ended]) } else { ended(nil) }
    case .held, .stopped: ended(nil)
    }
  }
}
