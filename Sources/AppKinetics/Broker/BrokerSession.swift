@preconcurrency import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import UnixSockets

/// The connection to the broker, over which the app is found and introduced (BROKER-PROTOCOL.md).
final class BrokerSession {
  enum Phase: Sendable, Equatable {
    case down, dialling, enrolling
    /// The broker waits for an administrator's approval.
    case pending
    case registering, up
  }

  typealias Continuation = @Sendable (Core, Result<WireAnswer, ServicesError>) -> Void
  typealias Starter = @Sendable (Result<Void, ServicesError>) -> Void

  unowned let core: Core
  private(set) var phase = Phase.down { didSet { show() } }
  /// The state of the app that the broker was told last over this connection.
  private var enrolledState = ApplicationState.running
  private(set) lazy var introductions = Introductions(core)
  private(set) lazy var watches = BrokerWatches(core)
  private(set) lazy var registration = BrokerRegistration(core)
  private(set) lazy var traffic = TrafficReport(core)
  /// For processes of this app that have not opened the container; nil when this one does not register.
  private var presence: Presence?
  private(set) var lastFailure: ServicesError? { didSet { show() } }
  /// Nothing would be better at the next try.
  private(set) var hasGivenUp = false

  /// Apps that the broker ever forgot, as this app knows: what comes later is told when it enrols again.
  private var forgottenCount: UInt64?

  /// Counts connections: what comes from an earlier one is passed over.
  private var connection: UInt64 = 0
  private var lane: BrokerLane?
  private var descriptors: DescriptorReceiver?
  private var lastQuestion: UInt64 = 0
  private var questions: [UInt64: Asked] = [:]
  /// The apps that unanswered dials are for.
  private var dials: [UInt64: String] = [:]
  /// Asked before the connection was there.
  private var early: [Asked] = []

  private struct Asked {
    let question: WireQuestion.OneOf_Kind
    let continuation: Continuation
    /// It was asked before, over a connection that ended without an answer.
    var wasAsked = false

    /// Whether it may be asked over the next connection: the one that it was asked over was about to end, which nobody knew.
    var isWorthAnother: Bool {
      if case .find = question { !wasAsked } else { false }
    }
  }
  private var starters: [Starter] = []
  private var failures: UInt64 = 0
  private var retryAt: UInt64?
  /// The earliest time at which a question may dial again. Later than now only after a broker that is not trusted.
  private var nextQuestionDialAt: UInt64 = 0

  private(set) var isInFront = false
  /// The apps whose front requests have come, until this app has lost the front.
  var frontRequests: Set<ApplicationID> = []
  /// How often this app came to front.
  var frontCount: UInt64 = 0
  /// The app that the front is passed on to when this one comes there in time.
  var owedFront: (application: ApplicationID, until: UInt64)?
  var frontWatchers = Watchers<Bool>()

  init(_ core: Core, _ presence: Presence?) {
    self.core = core
    self.presence = presence
  }

  var runtime: Runtime { core.runtime }

  static let versionMax: UInt32 = 1
  private static let retryTimes: ClosedRange<UInt64> = 100...10_000
  /// While another broker is in the place of the trusted one: that may have been a mistake, and pass.
  private static let untrustedRetryTimes: ClosedRange<UInt64> = 1_000...300_000

  /// Whether a connection that ended with this fault would end with it again.
  static func isFinal(_ fault: ProtocolFault) -> Bool {
    switch fault {
    case .keyNotPinned, .enterpriseUserNotMatch, .replaced, .duplicated, .forgotten, .versionNotSupported:
      true
    default: false
    }
  }

  /// Milliseconds until it is dialled again. Apps that lost the same broker do not come back all at once.
  static func pause(after failureCount: UInt64, _ fault: ProtocolFault?) -> UInt64 {
    let times = fault == .brokerNotTrusted ? untrustedRetryTimes : retryTimes
    let pause = min(times.lowerBound << min(failureCount - 1, 10), times.upperBound)
    return .random(in: pause / 2...pause)
  }

  // MARK: Life

  /// `starter` is called when the app is registered, or will not be. False when it is connected already.
  func mustConnect(for starter: @escaping Starter) -> Bool {
    guard phase == .up else {
      starters.append(starter)
      hasGivenUp = false
      registration.isTakenBack = !runtime.options.registers
      return true
    }
    registration.ask(starter)
    return false
  }

  private func tellStarters(_ result: Result<Void, ServicesError>) {
    let waiting = starters
    starters = []
    for starter in waiting { starter(result) }
  }

  /// These services are stopped. What takes its time enters the group.
  func stop(_ parts: DispatchGroup) {
    // The presence key may be on its way to the disk.
    parts.enter()
    runtime.workQueue.async { parts.leave() }
    if let lane {
      parts.enter()
      lane.whenClosed { parts.leave() }
      lane.close(.noError)
    }
    ended(ServicesError(.brokerUnavailable, detail: "these services were stopped"))
  }

  // MARK: Connecting

  func connect() {
    guard core.life == .running, phase == .down, !hasGivenUp else {
      if hasGivenUp, let lastFailure { tellStarters(.failure(lastFailure)) }
      return
    }
    phase = .dialling
    retryAt = nil
    connection += 1
    let connection = connection
    let (runtime, path, pinned) = (runtime, runtime.options.broker, core.identity.brokerKey)
    do {
      // Dialling blocks.
      try DetachedThread.start("dialling") {
        let result = Result { try BrokerDial.dial(path: path, pinned: pinned) }
        runtime.perform { $0.broker.dialled(result, isPinned: pinned != nil, connection) }
      }
    } catch {
      ended(ServicesError(.brokerUnavailable, detail: "\(error)"))
    }
  }

  private func dialled(
    _ result: Result<BrokerDial.Dialled, any Error>, isPinned: Bool, _ connection: UInt64
  ) {
    guard self.connection == connection, phase == .dialling else {
      if case .success(let dialled) = result { Self.closeAll([dialled.socket, dialled.descriptorLane]) }
      return
    }
    switch result {
    case .success(let dialled): open(dialled)
    case .failure(ProtocolFault.brokerNotTrusted) where isPinned:
      ended(Self.error(of: LaneEnd(.here, .brokerNotTrusted)), fault: .brokerNotTrusted)
    // The socket's error has the same advice as this one, which is not to be read twice.
    case .failure(SocketError.nobodyAnswers(let path)):
      ended(ServicesError(.brokerUnavailable, detail: "nobody answers at \(path)"))
    case .failure(let error):
      ended(ServicesError(.brokerUnavailable, detail: "\(runtime.options.broker): \(error)"))
    }
  }

  static func closeAll(_ descriptors: [Int32]) {
    for descriptor in descriptors { _ = try? Descriptor(adopting: descriptor) }
  }

  private func open(_ dialled: BrokerDial.Dialled) {
    phase = .enrolling
    let (runtime, connection) = (runtime, connection)
    // What comes from an earlier connection is passed over.
    let perform = { @Sendable (body: @escaping @Sendable (BrokerSession) -> Void) in
      runtime.perform { core in
        if core.broker.isCurrent(connection) { body(core.broker) }
      }
    }
    // The two readers hand over one batch at a time, and read the next when it was handled.
    let (descriptorTurn, messageTurn) = (ReaderTurn(), ReaderTurn())
    do {
      descriptors = try DescriptorReceiver(
        descriptor: dialled.descriptorLane,
        received: { ticket, control, bulk in
          descriptorTurn.begin()
          runtime.perform { core in
            guard core.broker.isCurrent(connection) else {
              Self.closeAll([control, bulk])
              return descriptorTurn.end()
            }
            core.broker.take(ticket, control, bulk)
            core.broker.introductions.whenThereIsRoom(descriptorTurn.end)
          }
        },
        closed: { fault in
          if fault != .noError { perform { $0.lane?.close(fault) } }
        })
    } catch {
      Self.closeAll([dialled.socket])
      return ended(ServicesError(.connectionLost, detail: "\(error)"))
    }
    do {
      lane = try BrokerLane.open(
        descriptor: dialled.socket,
        sealing: .toBroker(own: core.identity.key, broker: dialled.brokerKey), limits: LaneLimits(),
        events: LaneEvents(
          opened: { _ in perform { $0.opened(dialled.brokerKey) } },
          turn: LaneTurn(begin: messageTurn.begin, pass: messageTurn.end),
          received: { _, messages in
            runtime.perform { core in
              defer { messageTurn.end() }
              for message in messages where core.broker.isCurrent(connection) { core.broker.take(message) }
            }
          },
          closed: { _, end in perform { $0.ended(Self.error(of: end), fault: end.fault) } }))
    } catch {
      let code: ServicesError.Code = error is SocketError ? .connectionLost : .certificateNotFound
      ended(ServicesError(code, detail: "\(error)"))
    }
  }

  private func isCurrent(_ connection: UInt64) -> Bool { self.connection == connection && phase != .down }

  private func opened(_ brokerKey: Data) {
    if core.identity.brokerKey != nil { return enrol(trusting: brokerKey) }
    // Trusted on first use: written down before anything is told.
    let (runtime, connection) = (runtime, connection)
    runtime.workQueue.async {
      let result = Result { try Identity.pin(brokerKey, in: runtime.container) }
      runtime.perform { core in
        // It holds for every connection from now on.
        if case .success(let pinned) = result { core.trust(brokerKey: pinned) }
        guard core.broker.isCurrent(connection) else { return }
        switch result {
        case .success: core.broker.enrol(trusting: brokerKey)
        case .failure(let error):
          core.broker.lane?.close(.noError)
          core.broker.ended(
            ServicesError(
              .certificateNotFound, detail: "the container does not keep the broker's key: \(error)"))
        }
      }
    }
  }

  /// An earlier connection may have pinned another key since this one was dialled.
  private func enrol(trusting brokerKey: Data) {
    guard core.identity.brokerKey == brokerKey else {
      lane?.close(.brokerNotTrusted)
      return
    }
    enrolledState = core.state
    send(
      .with {
        $0.enrol = .with {
          $0.version = Self.versionMax
          $0.appID = runtime.appID
          $0.activationUser = runtime.application.activationUser
          $0.state = core.state.wire
          if let forgottenCount { $0.forgottenCount = forgottenCount }
          if let presence { $0.presenceKey = Data(presence.key.publicKey) }
        }
      })
  }

  /// Tells the broker the app's state. Calls back when it has heard it, or will hear it when the app has enrolled.
  func tellState(_ told: @escaping @Sendable (Result<Void, any Error>) -> Void = { _ in }) {
    guard phase == .up || phase == .registering else { return told(.success(())) }
    enrolledState = core.state
    ask(.state(.with { $0.state = core.state.wire })) { _, answer in
      told(answer.map { _ in }.mapError { $0 as any Error })
    }
  }

  /// Lets a process that stands in for the app take the place of this connection. Without one that is up there is nothing to give.
  func giveWay(_ told: @escaping @Sendable () -> Void) {
    guard phase == .up || phase == .registering else {
      lane?.close(.noError)
      return told()
    }
    let state = WireState.with { ($0.state, $0.givesWay) = (.locked, true) }
    put(.state(state)) { _, _ in told() }
  }

  private func send(_ message: WireBrokerMessage) {
    do {
      try lane?.send([message])
    } catch {
      lane?.close(error)
    }
  }

  // MARK: Receiving

  private func take(_ message: WireBrokerMessage) {
    switch message.kind {
    case .pending where phase == .enrolling:
      phase = .pending
      let error = approvalPending
      runtime.logger.notice("the broker waits for approval of this app", metadata: ["error": "\(error)"])
      lastFailure = error
      tellStarters(.failure(error))
      let waiting = early
      early = []
      for asked in waiting { asked.continuation(core, .failure(error)) }
    case .enrolled(let enrolled) where phase == .enrolling || phase == .pending:
      phase = .registering
      if enrolled.hasPolicy { core.take(enrolled.policy) }
      forgottenCount = enrolled.forgottenCount
      if let brokerKey = core.identity.brokerKey { presence?.keep(runtime, brokerKey) }
      for appID in enrolled.forgotten { wasForgotten(appID) }
      if enrolled.forgotOthers { core.anyWasForgotten() }
      if enrolled.isDuplicated {
        runtime.logger.warning(
          "another process of this app was connected again and again; is a copy of the container in use?")
      }
      // It may have waited to be approved for long.
      if enrolledState != core.state { tellState() }
      traffic.setWanted(enrolled.trafficIsWanted)
      if registration.isTakenBack { isConnected() } else { registration.begin() }
    case .answer(let answer): take(answer)
    case .introduction(let introduction) where phase == .up || phase == .registering:
      introductions.take(introduction)
    case .waiting(let waiting):
      if let text = dials[waiting.number], let application = try? ApplicationID(text) {
        core.peers[application]?.dialWaits(for: waiting.reason)
      }
    case .peerWaits(let message):
      if let application = try? ApplicationID(message.appID) { core.peerWaits(application) }
    case .providersChanged(let change): watches.take(change)
    case .frontChanged(let change): setFront(change.isInFront)
    case .policy(let policy): core.take(policy)
    case .trafficWanted(let message): traffic.setWanted(message.isWanted)
    case .forgotten(let message):
      forgottenCount = message.count
      wasForgotten(message.appID)
    default: breakOff(.unexpectedMessage)
    }
  }

  private func wasForgotten(_ appID: String) {
    if let application = try? ApplicationID(appID) { core.wasForgotten(application) }
  }

  private func take(_ answer: WireAnswer) {
    guard let continuation = questions[answer.number]?.continuation else {
      return breakOff(.unexpectedMessage)
    }
    if !(watches.isListing(answer.number) && answer.hasMorePages) { questions[answer.number] = nil }
    dials[answer.number] = nil
    if case .failure(let failure) = answer.kind {
      continuation(core, .failure(ServicesError(failure)))
    } else {
      continuation(core, .success(answer))
    }
    askEarly()
  }

  private func take(_ ticket: Data, _ control: Int32, _ bulk: Int32) {
    guard introductions.take(ticket, control, bulk) else { return breakOff(.unexpectedDescriptors) }
    askEarly()
  }

  /// The broker broke the protocol.
  private func breakOff(_ fault: ProtocolFault) {
    runtime.logger.warning("the broker broke the protocol", metadata: ["fault": "\(fault)"])
    lane?.close(fault)
  }

  private var approvalPending: ServicesError {
    let fingerprint = KeyFingerprint.text(of: Data(core.identity.key.publicKey))
    return ServicesError(
      .approvalPending, detail: "dynamics apps approve \(runtime.appID) \(fingerprint)")
  }

  // MARK: Asking

  /// Puts a question, or queues it while the connection is being made. Without a connection a question dials at once, because the
  /// broker may be back; after `brokerNotTrusted` it fails for a while, so that an app that asks often does not dial all the time.
  func ask(_ question: WireQuestion.OneOf_Kind, _ continuation: @escaping Continuation) {
    switch phase {
    case .up where early.isEmpty && hasRoom(for: question): put(question, continuation)
    case .up, .dialling, .enrolling, .registering:
      early.append(Asked(question: question, continuation: continuation))
    case .pending: continuation(core, .failure(approvalPending))
    case .down:
      guard core.life == .running, !hasGivenUp, runtime.now >= nextQuestionDialAt else {
        let error = core.notRunning ?? lastFailure ?? ServicesError(.brokerUnavailable)
        return continuation(core, .failure(error))
      }
      early.append(Asked(question: question, continuation: continuation))
      connect()
    }
  }

  /// The broker takes more at once; some room is left for what the app has to say itself.
  private static let questionCountMax = 192
  /// Introductions that are asked for, or whose sockets did not come yet: well below what the socket for them holds.
  private static let dialCountMax = 24

  private func hasRoom(for question: WireQuestion.OneOf_Kind) -> Bool {
    guard questions.count < Self.questionCountMax else { return false }
    guard case .connect = question else { return true }
    return dials.count + introductions.dialledCount < Self.dialCountMax
  }

  /// Asks what waited for a connection, for answers, or for sockets.
  private func askEarly() {
    var count = 0
    while phase == .up, count < early.count, hasRoom(for: early[count].question) {
      put(early[count])
      count += 1
    }
    early.removeFirst(count)
  }

  /// Over the connection that is there. Returns the question's number.
  @discardableResult
  func put(_ question: WireQuestion.OneOf_Kind, _ continuation: @escaping Continuation) -> UInt64 {
    put(Asked(question: question, continuation: continuation))
  }

  @discardableResult
  private func put(_ asked: Asked) -> UInt64 {
    lastQuestion += 1
    let number = lastQuestion
    questions[number] = asked
    if case .connect(let connect) = asked.question { dials[number] = connect.appID }
    send(
      .with {
        $0.question = .with {
          $0.number = number
          $0.kind = asked.question
        }
      })
    return number
  }

  /// Nothing of the question comes any more.
  func forgetQuestion(_ number: UInt64) { questions[number] = nil }

  // MARK: Registration

  /// The broker has what the app offers.
  func isConnected() {
    phase = .up
    failures = 0
    lastFailure = nil
    tellStarters(.success(()))
    watches.beginAgain()
    askEarly()
  }

  /// The broker does not take what the app offers.
  func registrationFailed(_ error: ServicesError) {
    hasGivenUp = error.code == .invalidRegistration
    lane?.close(.noError)
    ended(error)
  }

  // MARK: The end

  /// The connection is gone, or never came to be.
  private func ended(_ error: ServicesError, fault: ProtocolFault = .noError) {
    guard phase != .down || core.life == .stopped else { return }
    let wasUp = phase == .up
    phase = .down
    lane = nil
    descriptors?.close()
    descriptors = nil
    lastFailure = error
    introductions.end()
    watches.connectionEnded()
    traffic.setWanted(false)
    setFront(false)
    if Self.isFinal(fault) { hasGivenUp = true }
    failures += 1
    let now = runtime.now
    let pause = Self.pause(after: failures, fault)
    let next = now + pause
    retryAt = hasGivenUp ? nil : next
    nextQuestionDialAt = fault == .brokerNotTrusted ? now + min(pause, Self.retryTimes.upperBound) : now
    if let retryAt { core.wake(at: retryAt) }
    if core.life == .running {
      runtime.logger.notice("no broker", metadata: ["error": "\(error)", "again": "\(!hasGivenUp)"])
    }
    tellStarters(.failure(error))
    let unanswered = questions.sorted { $0.key < $1.key }.map(\.value) + early
    early = []
    questions = [:]
    dials = [:]
    let goesOn = wasUp && core.life == .running && error.code == .brokerUnavailable && !hasGivenUp
    for var asked in unanswered {
      if goesOn, asked.isWorthAnother {
        asked.wasAsked = true
        early.append(asked)
      } else {
        asked.continuation(core, .failure(error))
      }
    }
    if !early.isEmpty { connect() }
    if hasGivenUp || core.life == .stopped {
      watches.end(error)
      frontWatchers.finish()
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
      ServicesError(.placeTaken, detail: "the same app connected again")
    case .duplicated:
      ServicesError(
        .placeTaken,
        detail: """
          another process of the same app takes this one's place again and again; is a copy of the container in use?
          """
      )
    case .forgotten: ServicesError(.notEnrolled, detail: "an administrator forgot this app")
    // Not the other app's word, which would end what waits for it in the outbox.
    case .notAllowed: ServicesError(.approvalPending, detail: end.detail)
    case .limitExceeded, .certificateNotFound, .applicationNotFound:
      ServicesError(.init(rawValue: Int32(end.fault.rawValue)), detail: end.detail)
    default:
      ServicesError(
        .brokerUnavailable, detail: end.detail.isEmpty ? end.fault.text : "\(end.fault.text): \(end.detail)")
    }
  }

  // MARK: Deadlines

  var nextDeadline: UInt64? {
    [phase == .down ? retryAt : nil, registration.retryAt, introductions.nextDeadline, traffic.nextDeadline]
      .compactMap(\.self).min()
  }

  func tick(_ now: UInt64) {
    if phase == .down, let retryAt, now >= retryAt { connect() }
    introductions.tick(now)
    registration.tick(now)
    traffic.tick(now)
  }

  // MARK: Front

  /// For properties of the app's services.
  private func show() {
    let shown = Runtime.Shown(connectionError: phase == .up ? nil : lastFailure, isInFront: isInFront)
    let error = runtime.shown.withLock { now in
      defer { now = shown }
      return now.connectionError
    }
    if error != shown.connectionError { core.connectionWatchers.yield(shown.connectionError) }
  }

  private func setFront(_ isInFront: Bool) {
    guard isInFront != self.isInFront else { return }
    self.isInFront = isInFront
    if !isInFront { frontRequests = [] }
    show()
    frontWatchers.yield(isInFront)
    if isInFront { cameToFront() }
  }
}

extension Runtime {
  /// Asks the broker, for callers that wait.
  func ask(_ question: WireQuestion.OneOf_Kind) async throws -> WireAnswer {
    try await withCheckedThrowingContinuation { waiting in
      perform { core in
        core.broker.ask(question) { waiting.resume(with: $1.mapError { $0 as any Error }) }
      }
    }
  }
}

extension WireAnswer {
  fileprivate var hasMorePages: Bool {
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

  /// The reason for which a message with files waits in this state; nil when it does not wait.
  var waitReason: WireDeliveryWaiting.Reason? {
    switch self {
    case .running: nil
    case .locked: .unlock
    case .suspended: .resumption
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
