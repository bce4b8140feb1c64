import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import UnixSockets

/// The connection to the broker (SERVICE-PROTOCOL.md, "The broker connection").
extension Runtime {
  static let versionMax: UInt32 = 1
  private static let retryTimeMin: UInt64 = 100
  private static let retryTimeMax: UInt64 = 10_000
  /// Introductions without descriptors, and descriptors without introductions.
  private static let unmatchedCountMax = 16
  private static let unmatchedTime: UInt64 = 10_000

  // MARK: Connecting

  func connectBroker(_ core: inout Core) {
    guard core.life == .running, core.broker.phase == .down, !core.broker.hasGivenUp else {
      if core.broker.hasGivenUp, let failure = core.broker.lastFailure {
        tellStarters(.failure(failure), &core)
      }
      return
    }
    core.broker.phase = .dialling
    core.broker.retryAt = nil
    core.broker.connection += 1
    let connection = core.broker.connection
    let (path, pinned) = (options.broker, core.identity.brokerKey)
    do {
      // Dialling blocks.
      try DetachedThread.start("dialling") {
        let result = Result { try BrokerDial.dial(path: path, pinned: pinned) }
        self.core.perform { self.dialled(result, isPinned: pinned != nil, connection, &$0) }
      }
    } catch {
      brokerEnded(ServicesError(.brokerUnavailable, detail: "\(error)"), &core)
    }
  }

  private func dialled(
    _ result: Result<BrokerDial.Dialled, any Error>, isPinned: Bool, _ connection: UInt64, _ core: inout Core
  ) {
    guard core.broker.connection == connection, core.broker.phase == .dialling else {
      if case .success(let dialled) = result { Self.closeAll([dialled.socket, dialled.descriptorLane]) }
      return
    }
    switch result {
    case .success(let dialled): enrol(dialled, connection, &core)
    case .failure(ProtocolFault.brokerNotTrusted) where isPinned:
      brokerEnded(Self.error(of: LaneEnd(.here, .brokerNotTrusted)), &core, fault: .brokerNotTrusted)
    case .failure(let error):
      brokerEnded(ServicesError(.brokerUnavailable, detail: "\(options.broker): \(error)"), &core)
    }
  }

  static func closeAll(_ descriptors: [Int32]) {
    for descriptor in descriptors { _ = try? Descriptor(adopting: descriptor) }
  }

  private func enrol(_ dialled: BrokerDial.Dialled, _ connection: UInt64, _ core: inout Core) {
    core.broker.phase = .enrolling
    do {
      core.broker.descriptors = try DescriptorReceiver(
        descriptor: dialled.descriptorLane,
        received: { ticket, control, bulk in
          self.core.perform { self.take(ticket, control, bulk, connection, &$0) }
        },
        closed: { fault in
          guard fault != .noError else { return }
          self.ofBroker(connection) { $0.broker.lane?.close(fault) }
        })
    } catch {
      Self.closeAll([dialled.socket])
      return brokerEnded(ServicesError(.connectionLost, detail: "\(error)"), &core)
    }
    do {
      core.broker.lane = try BrokerLane.open(
        descriptor: dialled.socket,
        sealing: .toBroker(own: core.identity.key, broker: dialled.brokerKey), limits: LaneLimits(),
        events: LaneEvents(
          opened: { _ in
            self.ofBroker(connection) { self.brokerOpened(dialled.brokerKey, connection, &$0) }
          },
          received: { _, messages in
            self.ofBroker(connection) { for message in messages { self.take(message, &$0) } }
          },
          closed: { _, end in
            self.ofBroker(connection) { self.brokerEnded(Self.error(of: end), &$0, fault: end.fault) }
          }))
    } catch {
      let code: ServicesError.Code = error is SocketError ? .connectionLost : .certificateNotFound
      brokerEnded(ServicesError(code, detail: "\(error)"), &core)
    }
  }

  /// What comes from an earlier connection is passed over.
  private func ofBroker(_ connection: UInt64, _ work: @escaping @Sendable (inout Core) -> Void) {
    core.perform { core in
      guard core.broker.connection == connection, core.broker.phase != .down else { return }
      work(&core)
    }
  }

  private func brokerOpened(_ brokerKey: Data, _ connection: UInt64, _ core: inout Core) {
    // An earlier connection may have pinned another key since this one was dialled.
    @Sendable func enrol(trusting pinned: Data, _ core: inout Core) {
      if pinned == brokerKey { sendEnrol(&core) } else { core.broker.lane?.close(.brokerNotTrusted) }
    }
    if let pinned = core.identity.brokerKey { return enrol(trusting: pinned, &core) }
    // Trusted on first use: written down before anything is told.
    workQueue.async {
      let result = Result { try Identity.pin(brokerKey, in: self.container) }
      // It holds for every connection from now on.
      if case .success(let pinned) = result { self.core.perform { $0.identity.brokerKey = pinned } }
      self.ofBroker(connection) { core in
        switch result {
        case .success(let pinned): enrol(trusting: pinned, &core)
        case .failure(let error):
          core.broker.lane?.close(.noError)
          self.brokerEnded(
            ServicesError(
              .certificateNotFound, detail: "the container does not keep the broker's key: \(error)"), &core)
        }
      }
    }
  }

  private func sendEnrol(_ core: inout Core) {
    let state = core.state.wire
    sendBroker(
      .with {
        $0.enrol = .with {
          $0.version = Self.versionMax
          $0.appID = appID
          $0.activationUser = application.activationUser
          $0.state = state
        }
      }, &core)
  }

  private func sendBroker(_ message: WireBrokerMessage, _ core: inout Core) {
    do {
      try core.broker.lane?.send([message])
    } catch {
      core.broker.lane?.close(error)
    }
  }

  // MARK: Receiving

  private func take(_ message: WireBrokerMessage, _ core: inout Core) {
    switch message.kind {
    case .pending where core.broker.phase == .enrolling:
      core.broker.phase = .pending
      let error = approvalPending(core)
      logger.notice("the broker waits for approval of this app", metadata: ["error": "\(error)"])
      core.broker.lastFailure = error
      tellStarters(.failure(error), &core)
      let early = core.broker.early
      core.broker.early = []
      for (_, continuation) in early { continuation(&core, .failure(error)) }
    case .enrolled(let enrolled) where core.broker.phase == .enrolling || core.broker.phase == .pending:
      core.broker.phase = .registering
      take(enrolled, &core)
      if core.isUnregistered { isConnected(&core) } else { register(&core) }
    case .answer(let answer):
      guard let continuation = core.broker.questions[answer.number] else {
        return protocolFault(.unexpectedMessage, &core)
      }
      if core.broker.endedWatches.contains(answer.number) {
        if !answer.hasMorePages {
          core.broker.endedWatches.remove(answer.number)
          core.broker.questions[answer.number] = nil
        }
        return
      }
      let isPageOfWatch = core.broker.watches.values.contains { $0.number == answer.number }
      if !isPageOfWatch || !answer.hasMorePages { core.broker.questions[answer.number] = nil }
      core.broker.dials[answer.number] = nil
      continuation(&core, Self.result(of: answer))
      askEarly(&core)
    case .introduction(let introduction) where core.broker.phase == .up || core.broker.phase == .registering:
      take(introduction, &core)
    case .waiting(let waiting):
      dialWaits(waiting, &core)
    case .providersChanged(let change): take(change, &core)
    case .frontChanged(let change):
      core.isInFront = change.isInFront
      for watcher in core.frontWatchers.values { watcher.yield(change.isInFront) }
    case .policy(let policy): take(policy, &core)
    case .forgotten(let message):
      if let application = try? ApplicationID(message.appID) { forgetPeer(application, &core) }
    default: protocolFault(.unexpectedMessage, &core)
    }
  }

  private func protocolFault(_ fault: ProtocolFault, _ core: inout Core) {
    logger.warning("the broker broke the protocol", metadata: ["fault": "\(fault)"])
    core.broker.lane?.close(fault)
  }

  private static func result(of answer: WireAnswer) -> Result<WireAnswer, ServicesError> {
    guard case .failure(let failure) = answer.kind else { return .success(answer) }
    return .failure(ServicesError(failure))
  }

  private func take(_ enrolled: WireEnrolled, _ core: inout Core) {
    if enrolled.hasPolicy { take(enrolled.policy, &core) }
  }

  // MARK: Asking

  private func approvalPending(_ core: Core) -> ServicesError {
    let fingerprint = KeyFingerprint.text(of: Data(core.identity.key.publicKey))
    return ServicesError(.approvalPending, detail: "dynamics apps approve \(appID) \(fingerprint)")
  }

  /// Asks the broker; waits for a connection that is on its way, and fails without one.
  func ask(
    _ question: WireQuestion.OneOf_Kind, _ core: inout Core, _ continuation: @escaping BrokerPart.Continuation
  ) {
    switch core.broker.phase {
    case .up where core.broker.early.isEmpty && core.broker.questions.count < Self.questionCountMax:
      put(question, &core, continuation)
    case .up: core.broker.early.append((question, continuation))
    case .pending: continuation(&core, .failure(approvalPending(core)))
    case .dialling, .enrolling, .registering: core.broker.early.append((question, continuation))
    case .down:
      guard core.life == .running, !core.broker.hasGivenUp else {
        return continuation(&core, .failure(core.broker.lastFailure ?? ServicesError(.brokerUnavailable)))
      }
      core.broker.early.append((question, continuation))
      connectBroker(&core)
    }
  }

  /// The broker takes more at once; some room is left for what the app has to say itself.
  private static let questionCountMax = 192

  /// Asks what waited for a connection, or for answers.
  private func askEarly(_ core: inout Core) {
    guard core.broker.phase == .up, !core.broker.early.isEmpty else { return }
    let room = max(0, Self.questionCountMax - core.broker.questions.count)
    let next = Array(core.broker.early.prefix(room))
    core.broker.early.removeFirst(next.count)
    for (question, continuation) in next { put(question, &core, continuation) }
  }

  @discardableResult
  func put(
    _ question: WireQuestion.OneOf_Kind, _ core: inout Core, _ continuation: @escaping BrokerPart.Continuation
  ) -> UInt64 {
    core.broker.lastQuestion += 1
    let number = core.broker.lastQuestion
    core.broker.questions[number] = continuation
    if case .connect(let connect) = question { core.broker.dials[number] = connect.appID }
    sendBroker(
      .with {
        $0.question = .with {
          $0.number = number
          $0.kind = question
        }
      }, &core)
    return number
  }

  /// The same for callers that wait.
  func ask(_ question: WireQuestion.OneOf_Kind) async throws -> WireAnswer {
    try await withCheckedThrowingContinuation { waiting in
      core.perform { core in
        self.ask(question, &core) { waiting.resume(with: $1.mapError { $0 as any Error }) }
      }
    }
  }

  // MARK: Registration

  var registration: @Sendable (Core) -> WireRegister {
    { [application] core in
      .with {
        $0.name = application.name
        $0.entitlementID = application.entitlementID
        $0.entitlementVersion = application.entitlementVersion.text
        $0.icon = application.icon ?? Data()
        $0.services = core.offers.values.sorted {
          ($0.definition.serviceID.text, $0.definition.version.text)
            < ($1.definition.serviceID.text, $1.definition.version.text)
        }.map { offer in
          .with {
            $0.id = offer.definition.serviceID.text
            $0.version = offer.definition.version.text
            $0.type = offer.type == .server ? .server : .application
            $0.definition = Data(offer.definition.jsonText.utf8)
          }
        }
      }
    }
  }

  /// `earlier` was taken before, and takes the place of what the broker refuses now.
  private func register(_ core: inout Core, earlier: WireRegister? = nil) {
    let wanted = earlier ?? registration(core)
    put(.register(wanted), &core) { core, result in
      switch result {
      case .success:
        core.broker.registered = wanted
        self.isConnected(&core)
        // Something else is offered by now.
        if earlier == nil, self.registration(core) != wanted { self.registerAgain(&core) }
      // Else the connection has ended, and another one may go better.
      case .failure(let error) where core.broker.phase == .registering:
        if earlier == nil, error.code == .invalidRegistration, let registered = core.broker.registered,
          registered != wanted
        {
          self.logger.error("the broker refuses what is offered", metadata: ["error": "\(error)"])
          return self.register(&core, earlier: registered)
        }
        core.broker.hasGivenUp = error.code == .invalidRegistration
        core.broker.lane?.close(.noError)
        self.brokerEnded(error, &core)
      case .failure: break
      }
    }
  }

  private func isConnected(_ core: inout Core) {
    core.broker.phase = .up
    core.broker.failures = 0
    core.broker.lastFailure = nil
    tellStarters(.success(()), &core)
    watchAgain(&core)
    askEarly(&core)
  }

  private func tellStarters(_ result: Result<Void, ServicesError>, _ core: inout Core) {
    let started = core.broker.started
    core.broker.started = []
    for starter in started { starter(result) }
  }

  // MARK: The end

  /// The connection is gone, or never came to be.
  func brokerEnded(_ error: ServicesError, _ core: inout Core, fault: ProtocolFault = .noError) {
    guard core.broker.phase != .down || core.life == .stopped else { return }
    core.broker.phase = .down
    core.broker.lane = nil
    core.broker.descriptors?.close()
    core.broker.descriptors = nil
    core.broker.lastFailure = error
    for (introduction, _) in core.broker.introductions.values { forget(introduction, &core) }
    core.broker.introductions = [:]
    core.broker.endedWatches = []
    for (control, bulk, _) in core.broker.handed.values { Self.closeAll([control, bulk]) }
    core.broker.handed = [:]
    if core.isInFront {
      core.isInFront = false
      for watcher in core.frontWatchers.values { watcher.yield(false) }
    }
    for number in core.broker.watches.keys { core.broker.watches[number]?.number = nil }
    switch fault {
    case .keyNotPinned, .enterpriseUserNotMatch, .brokerNotTrusted, .replaced, .forgotten,
      .versionNotSupported:
      core.broker.hasGivenUp = true
    default: break
    }
    core.broker.failures += 1
    let pause = Self.retryTimeMin << UInt64(min(core.broker.failures - 1, 10))
    let retryAt = Self.now + min(pause, Self.retryTimeMax)
    core.broker.retryAt = retryAt
    core.wake(at: retryAt)
    if core.life == .running {
      logger.notice("no broker", metadata: ["error": "\(error)", "again": "\(!core.broker.hasGivenUp)"])
    }
    tellStarters(.failure(error), &core)
    let early = core.broker.early.map(\.1)
    let questions = core.broker.questions.sorted { $0.key < $1.key }.map(\.value)
    core.broker.early = []
    core.broker.questions = [:]
    core.broker.dials = [:]
    for continuation in questions + early { continuation(&core, .failure(error)) }
    if core.broker.hasGivenUp || core.life == .stopped {
      endWatches(error, &core)
      for watcher in core.frontWatchers.values { watcher.finish() }
      core.frontWatchers = [:]
    }
  }

  func tickBroker(_ now: UInt64, _ core: inout Core) {
    if core.broker.phase == .down, let retryAt = core.broker.retryAt, now >= retryAt { connectBroker(&core) }
    for (introduction, until) in core.broker.introductions.values where now >= until {
      forget(introduction, &core)
    }
    for (ticket, (control, bulk, until)) in core.broker.handed where now >= until {
      core.broker.handed[ticket] = nil
      Self.closeAll([control, bulk])
    }
  }

  /// What an app hears of a connection that ended.
  static func error(of end: LaneEnd) -> ServicesError {
    switch end.fault {
    case .keyNotPinned:
      ServicesError(
        .certificateNotFound,
        detail: "the broker knows another key for this app id: `dynamics apps forget` makes room for this one"
      )
    case .enterpriseUserNotMatch:
      ServicesError(
        .enterpriseUserNotMatch,
        detail: "the broker knows another user of this app id: `dynamics apps forget` makes room for this one"
      )
    case .brokerNotTrusted:
      ServicesError(
        .certificateNotFound, detail: "the broker is not the one that this container enrolled with")
    case .replaced:
      ServicesError(.brokerUnavailable, detail: "the same app connected again, and took this one's place")
    case .forgotten: ServicesError(.brokerUnavailable, detail: "an administrator forgot this app")
    // Not the other app's word, which would end what waits for it in the outbox.
    case .notAllowed: ServicesError(.approvalPending, detail: end.detail)
    case .limitExceeded, .certificateNotFound, .applicationNotFound:
      ServicesError(.init(rawValue: Int32(end.fault.rawValue)), detail: end.detail)
    default: ServicesError(.brokerUnavailable, detail: "\(end.fault.text) \(end.detail)")
    }
  }

  // MARK: Introductions

  private func take(_ introduction: WireIntroduction, _ core: inout Core) {
    if introduction.role == .dialler, let application = try? ApplicationID(introduction.appID) {
      core.peers[application]?.introduced = introduction.ticket
    }
    if let (control, bulk, _) = core.broker.handed.removeValue(forKey: introduction.ticket) {
      return open(introduction, control, bulk, &core)
    }
    // Other apps decide how many come at once, so one too many is no fault of the broker: the oldest goes.
    if core.broker.introductions.count >= Self.unmatchedCountMax,
      let (oldest, _) = core.broker.introductions.values.min(by: { $0.1 < $1.1 })
    {
      forget(oldest, &core)
    }
    core.broker.introductions[introduction.ticket] = (introduction, Self.now + Self.unmatchedTime)
  }

  private func take(
    _ ticket: Data, _ control: Int32, _ bulk: Int32, _ connection: UInt64, _ core: inout Core
  ) {
    guard core.broker.connection == connection, core.broker.phase != .down else {
      return Self.closeAll([control, bulk])
    }
    if let (introduction, _) = core.broker.introductions.removeValue(forKey: ticket) {
      return open(introduction, control, bulk, &core)
    }
    guard core.broker.handed[ticket] == nil else {
      Self.closeAll([control, bulk])
      return protocolFault(.unexpectedDescriptors, &core)
    }
    if core.broker.handed.count >= Self.unmatchedCountMax,
      let (oldest, sockets) = core.broker.handed.min(by: { $0.value.2 < $1.value.2 })
    {
      core.broker.handed[oldest] = nil
      Self.closeAll([sockets.control, sockets.bulk])
    }
    core.broker.handed[ticket] = (control, bulk, Self.now + Self.unmatchedTime)
  }

  /// Lets go of an introduction whose sockets did not come; who waits for it hears so.
  private func forget(_ introduction: WireIntroduction, _ core: inout Core) {
    core.broker.introductions[introduction.ticket] = nil
    guard introduction.role == .dialler, let application = try? ApplicationID(introduction.appID) else {
      return
    }
    cannotReach(
      application, ServicesError(.timedOut, detail: "the sockets of an introduction did not come"), &core)
  }
}

extension WireAnswer {
  var hasMorePages: Bool {
    if case .providers(let providers) = kind { providers.more } else { false }
  }
}

extension ApplicationState {
  var wire: WireAppState {
    switch self {
    case .running: .running
    case .locked: .locked
    case .suspended: .suspended
    }
  }
}

extension ServicesError {
  /// Numbers that this version does not know, and those that end connections, are `general`.
  init(_ failure: WireFailure) {
    let code = Code.known.first { $0.rawValue == Int32(clamping: failure.error) } ?? .general
    self.init(code, detail: failure.detail.isEmpty ? nil : failure.detail)
  }
}
