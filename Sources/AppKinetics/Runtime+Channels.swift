import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives
import UnixSockets

/// The channels to other apps (SERVICE-PROTOCOL.md, "The channel").
extension Runtime {
  /// Channels with one app, and with all, of which no more are accepted.
  private static let channelCountMax = ExchangeLimits().channelCountMax
  private static let allChannelCountMax = 1024

  func peer(_ application: ApplicationID, _ core: inout Core) -> Peer {
    if let peer = core.peers[application] { return peer }
    let peer = Peer(
      exchange: Exchange(
        ownAppID: appID, peerAppID: application.text, process: process, limits: options.exchangeLimits),
      deliveries: Deliveries(limits: options.deliveryLimits),
      callbacks: options.callbackQueue ?? DispatchQueue(label: "opendynamics.services.callbacks"))
    core.peers[application] = peer
    return peer
  }

  // MARK: Dialling

  func dial(_ application: ApplicationID, _ core: inout Core) {
    guard core.peers[application]?.isDialling == false else { return }
    core.peers[application]?.isDialling = true
    ask(.connect(.with { $0.appID = application.text }), &core) { core, result in
      switch result {
      case .failure(let error): self.cannotReach(application, error, &core)
      case .success(let answer):
        // The introduction came before; its channel may have ended already.
        guard let peer = core.peers[application], peer.introduced != answer.introduced.ticket else { return }
        self.cannotReach(
          application, ServicesError(.connectionLost, detail: "no introduction came of the broker"), &core)
      }
    }
  }

  /// The other app has to be started or unlocked: that may take its time, and the request was taken.
  func dialWaits(_ waiting: WireWaiting, _ core: inout Core) {
    guard let text = core.broker.dials[waiting.number], let application = try? ApplicationID(text),
      let peer = core.peers[application]
    else { return }
    for request in peer.sent.values { request.accept() }
    core.peers[application]?.isDialWaiting = true
  }

  func cannotReach(_ application: ApplicationID, _ error: ServicesError, _ core: inout Core) {
    let failure = WireFailure.with {
      $0.error = UInt32(error.code.rawValue)
      $0.detail = error.detail ?? ""
    }
    core.peers[application]?.isDialWaiting = false
    core.peers[application]?.isDialling = false
    deliveriesCannotReach(application, error, &core)
    guard let outputs = core.peers[application]?.exchange.channelRefused(failure, now: Self.now) else {
      return
    }
    act(outputs, application, &core)
  }

  func open(_ introduction: WireIntroduction, _ control: Int32, _ bulk: Int32, _ core: inout Core) {
    guard let application = try? ApplicationID(introduction.appID), core.life == .running else {
      return Self.closeAll([control, bulk])
    }
    let isDialled = introduction.role == .dialler
    let user = self.application.activationUser
    guard introduction.activationUser.utf8.elementsEqual(user.utf8) else {
      Self.closeAll([control, bulk])
      if isDialled { cannotReach(application, ServicesError(.enterpriseUserNotMatch), &core) }
      return
    }
    let count = peer(application, &core).channels.count
    guard
      introduction.role == .dialler
        || count < Self.channelCountMax
          && core.peers.values.reduce(0, { $0 + $1.channels.count }) < Self.allChannelCountMax
    else { return Self.closeAll([control, bulk]) }
    core.lastChannel += 1
    let number = ChannelNumber(core.lastChannel)
    let ticket = introduction.ticket
    let (own, other) = ((appID, user), (application.text, introduction.activationUser))
    let prologue = Prologue.channel(
      ticket: ticket, dialler: isDialled ? own : other, acceptor: isDialled ? other : own)
    let turn = ReaderTurn()
    do {
      let lane = try ControlLane.open(
        descriptor: control,
        sealing: .channel(
          isDialler: isDialled, own: core.identity.key, peer: introduction.publicKey, prologue: prologue),
        limits: LaneLimits(),
        events: LaneEvents(
          opened: { _ in
            self.core.perform { self.channelOpened(application, number, ticket, &$0) }
          },
          // The lane is not read on before the messages of the last read were handled, whether or not they need an answer.
          received: { _, messages in
            turn.begin()
            self.core.perform { core in
              self.received(messages, application, number, &core)
              turn.end()
            }
          },
          isFull: { _, isFull in
            self.core.perform { core in
              guard let outputs = core.peers[application]?.exchange.channelIsFull(number, isFull) else {
                return
              }
              self.act(outputs, application, &core)
            }
          },
          closed: { _, end in
            self.core.perform { self.channelClosed(application, number, end, &$0) }
          }))
      core.peers[application]?.channels[number] = Peer.Channel(
        lane: lane, bulk: bulkLane(bulk, lane, application, number), ticket: ticket,
        peerKey: introduction.publicKey, isDialled: isDialled, lastUsed: Self.now)
    } catch {
      Self.closeAll([bulk])
      logger.error("no channel", metadata: ["app": "\(application)", "error": "\(error)"])
      if isDialled {
        // A key that is none, or too many open files.
        let code: ServicesError.Code = error is SocketError ? .connectionLost : .certificateNotFound
        cannotReach(application, ServicesError(code, detail: "\(error)"), &core)
      }
    }
  }

  private func bulkLane(
    _ descriptor: Int32, _ lane: ControlLane, _ application: ApplicationID, _ number: ChannelNumber
  ) -> BulkLane {
    BulkLane(
      descriptor: descriptor,
      events: BulkEvents(
        sent: { stream, error in
          self.core.perform { self.streamSent(stream, error, application, number, &$0) }
        },
        received: { stream, error in
          self.core.perform { self.streamReceived(stream, error, application, number, &$0) }
        },
        // The two lanes end together. Where it is the peer that ended this one, what it said last on the other may not have been read yet.
        failed: { [weak lane, workQueue] fault, detail in
          guard fault == .connectionLost || fault == .noError else {
            lane?.close(fault, detail: detail)
            return
          }
          workQueue.asyncAfter(deadline: .now() + Self.lastWordsTime) { [weak lane] in
            lane?.close(.noError, detail: detail)
          }
        }), slotCountMax: options.exchangeLimits.slotCountMax)
  }

  /// As long as a lane lingers for its peer.
  private static let lastWordsTime = DispatchTimeInterval.seconds(1)

  private func channelOpened(
    _ application: ApplicationID, _ number: ChannelNumber, _ ticket: Data, _ core: inout Core
  ) {
    // Before anything is said: the peer hears why not, and nothing else.
    guard let channel = core.peers[application]?.channels[number], mayUse(channel, application, &core) else {
      return
    }
    core.peers[application]?.channels[number]?.isOpen = true
    core.peers[application]?.isDialWaiting = false
    core.peers[application]?.isDialling = false
    guard
      let outputs = core.peers[application]?.exchange.channelOpened(number, ticket: ticket, now: Self.now)
    else { return }
    act(outputs, application, &core)
  }

  private func received(
    _ messages: [WireChannelMessage], _ application: ApplicationID, _ number: ChannelNumber,
    _ core: inout Core
  ) {
    let now = Self.now
    core.peers[application]?.channels[number]?.lastUsed = now
    var outputs: [ExchangeOutput] = []
    for message in messages {
      let wasOpen = core.peers[application]?.exchange.isOpen(number) == true
      if wasOpen, Deliveries.isDelivery(message) {
        core.peers[application]?.channels[number]?.lastDelivered = now
        outputs += core.peers[application]?.exchange.heard(on: number, now: now) ?? []
        act(outputs, application, &core)
        outputs = []
        step(application, &core) { $0.receive(message, on: number) }
        continue
      }
      // The first record proves the peer's key. Another channel may have been first meanwhile.
      if !wasOpen, let channel = core.peers[application]?.channels[number] {
        guard mayUse(channel, application, &core) else { return }
        pin(channel, application, &core)
      }
      guard let more = core.peers[application]?.exchange.receive(message, on: number, now: now) else {
        return
      }
      outputs += more
      // What the exchange did not take says nothing.
      guard !wasOpen, case .hello(let hello) = message.kind,
        core.peers[application]?.exchange.isOpen(number) == true
      else { continue }
      core.peers[application]?.channels[number]?.hasBegun = true
      core.peers[application]?.channels[number]?.lane.limitSentFrames(to: Int(hello.frameByteCount))
      act(outputs, application, &core)
      outputs = []
      channelBegan(hello, application, number, &core)
    }
    act(outputs, application, &core)
  }

  private func channelClosed(
    _ application: ApplicationID, _ number: ChannelNumber, _ end: LaneEnd, _ core: inout Core
  ) {
    guard let channel = core.peers[application]?.channels.removeValue(forKey: number) else { return }
    channel.bulk.close()
    if end.fault != .noError {
      logger.warning(
        "a channel ended",
        metadata: [
          "app": "\(application)", "fault": "\(end.fault)", "by": "\(end.side)",
          // What the peer said is not for a log.
          "detail": "\(end.side == .peer ? "" : end.detail)",
        ])
    }
    let isKeyChanged = end.fault == .keyChanged
    if channel.isOpen {
      guard var outputs = core.peers[application]?.exchange.channelClosed(number, now: Self.now) else {
        return
      }
      // Another channel would end in the same way.
      if isKeyChanged { outputs.removeAll { $0 == .connect } }
      act(outputs, application, &core)
    }
    core.peers[application]?.isDialling = false
    guard core.life == .running else { return }
    if channel.hasBegun {
      step(application, &core) { $0.channelClosed(number) }
    } else if channel.isDialled, isKeyChanged {
      cannotReach(application, keyError(of: end, application, core), &core)
    } else if channel.isDialled, !channel.isOpen {
      cannotReach(application, Self.channelError(of: end), &core)
    } else if channel.isDialled {
      deliveriesCannotReach(application, Self.channelError(of: end), &core)
    }
  }

  private static func channelError(of end: LaneEnd) -> ServicesError {
    switch end.fault {
    case .certificateNotFound, .enterpriseUserNotMatch, .limitExceeded, .timedOut, .notAllowed:
      ServicesError(.init(rawValue: Int32(end.fault.rawValue)), detail: end.detail)
    default: ServicesError(.connectionLost, detail: "the channel ended before it began: \(end.fault.text)")
    }
  }

  // MARK: Doing what the exchange wants

  func act(_ outputs: [ExchangeOutput], _ application: ApplicationID, _ core: inout Core) {
    var batch: [WireChannelMessage] = []
    var batchChannel: ChannelNumber?
    func flush(_ core: Core) {
      guard let number = batchChannel, !batch.isEmpty else { return }
      send(batch, application, number, core)
      batch = []
    }
    for output in outputs {
      if case .send(let message, let number) = output {
        if number != batchChannel { flush(core) }
        batchChannel = number
        batch.append(message)
        if case .request(let request) = message.kind, let id = Identifier(exactly: request.id) {
          core.peers[application]?.sent[id]?.didSend()
        }
        continue
      }
      flush(core)
      switch output {
      case .send: break
      case .close(let number, let fault, let detail):
        core.peers[application]?.channels[number]?.lane.close(fault, detail: detail)
      case .awaitRoom(let number): core.peers[application]?.channels[number]?.lane.awaitRoom()
      case .connect: dial(application, &core)
      case .consumer(let id, let event): consumer(id, event, application, &core)
      case .provider(let id, let event): provider(id, event, application, &core)
      }
    }
    flush(core)
    if let time = core.peers[application]?.exchange.retryTime { core.wake(at: time) }
  }

  func send(
    _ messages: [WireChannelMessage], _ application: ApplicationID, _ number: ChannelNumber, _ core: Core
  ) {
    guard let lane = core.peers[application]?.channels[number]?.lane else { return }
    do {
      if messages.allSatisfy(\.isUnhurried) {
        try lane.sendUnhurried(messages)
      } else {
        try lane.send(messages)
      }
    } catch {
      logger.error("a message cannot be sent", metadata: ["app": "\(application)", "fault": "\(error)"])
      lane.close(.noError)
    }
  }

  // MARK: Ending

  func closeIdleChannels(_ application: ApplicationID, _ now: UInt64, _ core: inout Core) {
    guard let peer = core.peers[application], peer.isIdle else { return }
    for channel in peer.channels.values
    where channel.isOpen && now >= channel.lastUsed + Self.idleChannelTime {
      channel.lane.close(.noError)
    }
    if peer.channels.isEmpty, !peer.isDialling { core.peers[application] = nil }
  }

  /// An administrator has forgotten the app: what of it waits is not handled any more.
  func forgetPeer(_ application: ApplicationID, _ core: inout Core) {
    let locked = core.locked.filter { $0.peer == application }
    core.locked.removeAll { $0.peer == application }
    for request in locked { refuse(request.id, .notAllowed, application, &core) }
    core.lockedOffers.removeAll { $0.peer == application }
    let ready = core.peers[application]?.ready ?? []
    core.peers[application]?.ready = []
    for next in ready {
      let id = next.request.id
      core.peers[application]?.incoming[id] = nil
      if let arrival = next.request.arrival {
        removeFiles(next.request.attachments)
        endQueued(arrival)
        continue
      }
      guard core.peers[application]?.exchange.begin(id) == true else { continue }
      let outputs = try? core.peers[application]?.exchange.endWithoutReply(id, now: Self.now)
      act(outputs ?? [], application, &core)
    }
    endPeer(application, &core)
  }

  /// No channel with this app may go on.
  func endPeer(_ application: ApplicationID, _ core: inout Core) {
    guard let peer = core.peers[application] else { return }
    for channel in peer.channels.values { channel.lane.close(.noError) }
    guard core.life == .stopped else { return }
    let lost = ServicesError(.connectionLost, detail: "these services were stopped")
    for request in peer.sent.values {
      let error = request.isDelivery ? Self.stopped : lost
      request.end(.lost, .failure(error), .didFail(error))
    }
    for delivery in peer.outgoing.values { for body in delivery.whenEnded { body(nil) } }
    for delivery in peer.arriving.values { delivery.queue.async { delivery.suspend() } }
    // What the app wants to be called then is not called within this work.
    for incoming in peer.incoming.values { workQueue.async { incoming.request.cancel() } }
    // Not before the other lane: the peer may take the end of one for the end of both.
    for channel in peer.channels.values {
      channel.lane.whenClosed { channel.bulk.close() }
    }
    core.peers[application] = nil
  }

  // MARK: Policy

  func take(_ policy: WirePolicy, _ core: inout Core) {
    core.policy = policy
    // Where one of the two may call, the channel goes on, and the provider's side refuses what the other one sends.
    for application in core.peers.keys
    where policy.denies(appID, application.text) && policy.denies(application.text, appID) {
      endPeer(application, &core)
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

extension WirePolicy {
  func denies(_ consumer: String, _ provider: String) -> Bool {
    denials.contains { $0.denies(consumer, provider) }
  }
}
