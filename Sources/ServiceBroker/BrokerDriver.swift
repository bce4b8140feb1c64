import Dispatch
import Foundation
import LocalTransport
import Logging
import ServiceValues
import ServiceWire
import SodiumPrimitives
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Does what a ``BrokerState`` wants done, one piece of work after another: lanes, socket pairs, files, programs, and the time.
final class BrokerDriver: @unchecked Sendable {
  // Invariant: what changes is touched on `queue` only. Who reads a connection waits until what was read is handled, so each
  // connection has one batch there at most.
  private let queue = DispatchQueue(label: "opendynamics.broker")
  private var state: BrokerState
  private let store: BrokerStore
  private let compositor: CompositorAsking
  private let logger: Logger
  private var connections: [ConnectionNumber: Connection] = [:]
  private var nextNumber: UInt64 = 1
  /// What came over connections, and what goes as there is room, by who is charged for it.
  private var turns = FairTurns<BrokerOwner, Work>(turnTime: 1_000_000)
  private var isTakingTurns = false
  private var outputs: [BrokerOutput] = []
  private var isPerforming = false
  /// Something of the outputs that are being performed could not be written: it is not acknowledged.
  private var hasFailedToSave = false
  /// What could not be written to its file yet.
  private var unsaved: Set<BrokerRecords.Part> = []
  /// The broker has started these last, one for each app, and they have not failed.
  private var programs: [String: (number: UInt64, child: ChildProgram)] = [:]
  private var nextProgram: UInt64 = 1
  private let socketPath: String
  private let ticks: any DispatchSourceTimer
  /// While something has a deadline, and a second longer: an idle broker is not woken.
  private var isTicking = false
  private var allClosed: (() -> Void)?

  private struct Connection {
    /// Nil until the handshake begins.
    var lane: BrokerLane?
    var socket: Int32?
    let descriptors: DescriptorSender
    let process: Int32
    var appID: String?
    var isFull = false
    /// Whether `continue` is owed to the state.
    var isMoreOwed = false
  }

  private enum Work {
    /// One read of a connection; its reader waits for `done`.
    case messages(ArraySlice<WireBrokerMessage>, of: ConnectionNumber, done: DispatchSemaphore)
    /// The state has more for a connection.
    case more(ConnectionNumber)
  }

  /// Above it, what comes as there is room waits; well below what closes a connection that does not read.
  private static let roomByteCountMax = 1 << 20
  private static let tickInterval: TimeInterval = 1

  init(_ store: BrokerStore, _ configuration: ServiceBroker.Configuration, _ logger: Logger) throws {
    self.store = store
    self.logger = logger
    socketPath = configuration.socketPath
    compositor = CompositorAsking(configuration.compositor)
    var limits = configuration.limits
    limits.plainApps = configuration.plainApps.admission
    limits.sandboxedApps = configuration.sandboxedApps.admission
    state = BrokerState(
      publicKey: Data(store.key.publicKey), administratorKey: Data(store.administratorKey.publicKey),
      originSecret: try store.key.withPrivateKey {
        KeyedHash.compute(count: 32, key: $0, data: Array("OpenDynamics origins".utf8))
      }, records: store.records, limits: limits, programFault: ProgramFile.fault)
    ticks = DispatchSource.makeTimerSource(queue: queue)
    ticks.setEventHandler { [weak self] in self?.tick() }
    ticks.schedule(deadline: .distantFuture)
    ticks.resume()
  }

  /// Of a clock that nobody sets.
  private var now: UInt64 { DispatchTime.now().uptimeNanoseconds / 1_000_000 }
  private var date: UInt64 { UInt64(max(0, Date().timeIntervalSince1970 * 1000)) }

  // MARK: Connections

  /// Waits until it has its place.
  func accepted(_ accepted: BrokerAcceptor.Accepted) { queue.sync { take(accepted) } }

  private func take(_ accepted: BrokerAcceptor.Accepted) {
    let number = ConnectionNumber(nextNumber)
    nextNumber += 1
    connections[number] = Connection(
      socket: accepted.socket, descriptors: DescriptorSender(descriptor: accepted.descriptorLane),
      process: accepted.process)
    perform(state.connected(number, process: accepted.process, origin: accepted.origin, now: now))
    guard connections[number] != nil else { return }
    connections[number]?.socket = nil
    var limits = LaneLimits()
    limits.frameByteCountMax = state.limits.receivedFrameByteCountMax
    limits.elementCountMax = state.limits.elementCountMax
    limits.beginningTime = .milliseconds(Int64(state.limits.beginningTime))
    limits.queuedByteCountMax = Self.roomByteCountMax
    let events = LaneEvents<WireBrokerMessage>(
      opened: { lane in self.queue.sync { self.opened(number, lane.peerPublicKey) } },
      received: { _, messages in
        let done = DispatchSemaphore(value: 0)
        self.queue.async { self.add(.messages(messages[...], of: number, done: done), of: number) }
        done.wait()
      },
      isFull: { _, isFull in self.queue.sync { self.setFull(number, isFull) } },
      closed: { _, end in self.queue.sync { self.closed(number, end) } })
    do {
      let lane = try BrokerLane.open(
        descriptor: accepted.socket, sealing: .asBroker(own: store.key), limits: limits, events: events)
      lane.limitSentFrames(to: state.limits.frameByteCountMax)
      connections[number]?.lane = lane
    } catch {
      logger.error("a connection does not begin", metadata: ["error": "\(error)"])
      forget(number)
      perform(state.disconnected(number))
    }
  }

  private func opened(_ number: ConnectionNumber, _ publicKey: Data?) {
    if let publicKey { state.authenticated(number, publicKey: publicKey) }
  }

  // MARK: Turns

  private func add(_ work: Work, of number: ConnectionNumber) {
    guard let owner = state.owner(of: number) else {
      if case .messages(_, _, let done) = work { done.signal() }
      return
    }
    turns.add(work, of: owner)
    guard !isTakingTurns else { return }
    isTakingTurns = true
    takeTurn()
  }

  /// One turn of one owner. What does not wait for turns comes between it and the next.
  private func takeTurn() {
    guard let (owner, next) = turns.next() else {
      isTakingTurns = false
      return
    }
    let begin = DispatchTime.now().uptimeNanoseconds
    var work: Work? = next
    var end = begin
    while let part = work, end - begin < turns.turnTime {
      work = step(part)
      end = DispatchTime.now().uptimeNanoseconds
    }
    turns.took(end - begin, of: owner, rest: work)
    if turns.isEmpty { isTakingTurns = false } else { queue.async { self.takeTurn() } }
  }

  /// Does some of it; returns the rest.
  private func step(_ work: Work) -> Work? {
    switch work {
    case .more(let number):
      continueIfOwed(number)
      return nil
    case .messages(var messages, let number, let done):
      if let message = messages.popFirst() {
        perform(state.receive(message, from: number, now: now, date: date))
      }
      if !messages.isEmpty { return .messages(messages, of: number, done: done) }
      if connections[number]?.appID == nil { connections[number]?.appID = state.appID(of: number) }
      done.signal()
      return nil
    }
  }

  // MARK: Ends

  private func closed(_ number: ConnectionNumber, _ end: LaneEnd) {
    log(number, end)
    forget(number)
    perform(state.disconnected(number))
  }

  private func forget(_ number: ConnectionNumber) {
    connections.removeValue(forKey: number)?.descriptors.close()
    tellIfAllClosed()
  }

  private func tellIfAllClosed() {
    guard connections.isEmpty, let tell = allClosed else { return }
    allClosed = nil
    tell()
  }

  /// Each end with a fault once, and nothing that the peer sent but its app id, whose letters are known.
  private func log(_ number: ConnectionNumber, _ end: LaneEnd) {
    guard end.fault != .noError, let connection = connections[number] else { return }
    var metadata: Logger.Metadata = ["pid": "\(connection.process)", "fault": "\(end.fault)"]
    if let appID = connection.appID { metadata["app"] = "\(appID)" }
    if end.side != .peer, !end.detail.isEmpty { metadata["detail"] = "\(end.detail)" }
    let isExpected = [.connectionLost, .shuttingDown, .replaced, .forgotten].contains(end.fault)
    logger.log(
      level: isExpected ? .info : .warning,
      end.side == .peer ? "the peer ended a connection" : "a connection ended", metadata: metadata)
  }

  // MARK: Room

  private func setFull(_ number: ConnectionNumber, _ isFull: Bool) {
    connections[number]?.isFull = isFull
    if !isFull { continueIfOwed(number) }
  }

  private func continueIfOwed(_ number: ConnectionNumber) {
    guard let connection = connections[number], connection.isMoreOwed, !connection.isFull else { return }
    connections[number]?.isMoreOwed = false
    perform(state.continue(number))
  }

  // MARK: Outputs

  private func perform(_ more: [BrokerOutput]) {
    outputs += more
    guard !isPerforming else { return }
    setTicking(true)
    isPerforming = true
    var next = 0
    while next < outputs.count {
      perform(outputs[next])
      next += 1
    }
    outputs = []
    isPerforming = false
    hasFailedToSave = false
  }

  private func perform(_ output: BrokerOutput) {
    switch output {
    case .send(var message, let to):
      // After a restart the broker may give the count to another app that is forgotten.
      if unsaved.contains(.forgotten), case .enrolled = message.kind { message.enrolled.forgottenCount = 0 }
      if hasFailedToSave {
        switch message.kind {
        case .answer:
          message.answer.failure.error = UInt32(ServicesError.general.rawValue)
          message.answer.failure.detail = "the broker cannot write its state"
        // After a restart the broker may give the count to another one.
        case .forgotten: message.forgotten.count = 0
        case .enrolled: return perform(state.end(to, .limitExceeded, detail: "the broker's disk"))
        default: break
        }
      }
      send(message, to)
    case .close(let number, let fault, let detail): close(number, fault, detail)
    case .more(let number):
      connections[number]?.isMoreOwed = true
      queue.async { self.add(.more(number), of: number) }
    case .introduce(let introduction): introduce(introduction)
    case .start(let appID, let program, let arguments): start(appID, program, arguments)
    case .endProgram(let appID):
      guard let program = programs[appID] else { return }
      logger.warning("an app's program has not enrolled in time, and is ended", metadata: ["app": "\(appID)"])
      program.child.end()
    case .askCompositor(let appID, let change): ask(change, appID)
    case .stopAskingCompositor: compositor.stop()
    case .save(let part):
      unsaved.insert(part)
      require(part)
    case .require(let part): require(part)
    }
  }

  private func send(_ message: WireBrokerMessage, _ number: ConnectionNumber) {
    guard let lane = connections[number]?.lane else { return }
    do throws(ProtocolFault) {
      try lane.send([message])
    } catch {
      logger.critical("a message does not fit its limit", metadata: ["fault": "\(error)"])
      return perform(state.end(number, .limitExceeded))
    }
    let queuedByteCount = lane.queuedByteCount
    if queuedByteCount > state.limits.queuedByteCountMax
      || queuedByteCount > Self.lookByteCount && isTooMuchQueued(of: number)
    {
      perform(state.end(number, .tooSlow))
    }
  }

  /// What waits for a connection, from which on it is looked at what waits for all of its owner.
  private static let lookByteCount = 64 << 10

  private func isTooMuchQueued(of number: ConnectionNumber) -> Bool {
    let all = state.connections(ofOwnerOf: number).reduce(0) {
      $0 + (connections[$1]?.lane?.queuedByteCount ?? 0)
    }
    return all > state.limits.ownerQueuedByteCountMax
  }

  private func close(_ number: ConnectionNumber, _ fault: ProtocolFault, _ detail: String) {
    guard let connection = connections[number] else { return }
    if let lane = connection.lane { return lane.close(fault, detail: detail) }
    // Before the handshake nothing can be said.
    log(number, LaneEnd(.here, fault, detail))
    if let socket = connection.socket { _ = try? Descriptor(adopting: socket) }
    forget(number)
  }

  private func introduce(_ introduction: BrokerIntroduction) {
    do {
      let control = try SocketPair()
      let bulk = try SocketPair()
      let (diallerControl, acceptorControl) = control.ends()
      let (diallerBulk, acceptorBulk) = bulk.ends()
      // The acceptor's first: the dialler hears nothing of an introduction that does not come about.
      if hand(introduction.ticket, acceptorControl, acceptorBulk, to: introduction.acceptor) {
        send(introduction.toAcceptor, introduction.acceptor)
        if hand(introduction.ticket, diallerControl, diallerBulk, to: introduction.dialler) {
          send(introduction.toDialler, introduction.dialler)
          send(introduction.answer, introduction.dialler)
        } else {
          // The acceptor finds its ends closed.
          send(introduction.refusalOfDialler, introduction.dialler)
        }
        return
      }
      for end in [diallerControl, diallerBulk] { _ = try? Descriptor(adopting: end) }
      send(introduction.refusal, introduction.dialler)
    } catch {
      logger.error("two apps cannot be introduced", metadata: ["error": "\(error)"])
      send(introduction.refusalWithoutDescriptors, introduction.dialler)
    }
  }

  /// Closes both here, whatever comes of it. False when the connection's descriptor lane has no room, or has ended.
  private func hand(_ ticket: Data, _ control: Int32, _ bulk: Int32, to number: ConnectionNumber) -> Bool {
    guard let descriptors = connections[number]?.descriptors else {
      for end in [control, bulk] { _ = try? Descriptor(adopting: end) }
      return false
    }
    return descriptors.send(ticket: ticket, control: control, bulk: bulk)
  }

  // MARK: Programs

  private func start(_ appID: String, _ program: String, _ arguments: [String]) {
    // It may be another file than when it was installed.
    if let fault = ProgramFile.fault(at: program) {
      logger.error("an app's program is not started", metadata: ["app": "\(appID)", "program": "\(fault)"])
      return startFailed(appID)
    }
    let number = nextProgram
    nextProgram += 1
    let environment = ChildProgram.appEnvironment(
      ProcessInfo.processInfo.environment, broker: URL(fileURLWithPath: socketPath).path)
    // Until it is ended because its app has not come, which a busy machine or disk may delay.
    let groupTime = TimeInterval(state.limits.startTime) / 1000 + 10 * Self.tickInterval
    let child = ChildProgram(
      program, arguments: arguments, environment: environment, keepingGroupFor: groupTime
    ) { [weak self] isDone in
      guard let self else { return }
      queue.async { self.programEnded(appID, number, isDone: isDone) }
    }
    programs[appID] = child.map { (number, $0) }
    logger.info(
      child == nil ? "an app's program cannot be started" : "started an app", metadata: ["app": "\(appID)"])
    if child == nil { startFailed(appID) }
  }

  private func programEnded(_ appID: String, _ number: UInt64, isDone: Bool) {
    // A program that has left its app behind in another process ends with 0: that may have to be ended, too.
    guard !isDone, programs[appID]?.number == number else { return }
    programs[appID] = nil
    startFailed(appID)
  }

  private func startFailed(_ appID: String) { perform(state.startFailed(appID, now: now)) }

  private func ask(_ change: FrontChange, _ appID: String?) {
    compositor.ask(appID) { isDone in self.queue.async { self.answered(change, isDone) } }
  }

  private func answered(_ change: FrontChange, _ isDone: Bool) {
    perform(state.compositorAnswered(change, isDone: isDone, now: now))
  }

  // MARK: Files and time

  private func require(_ part: BrokerRecords.Part) {
    guard unsaved.contains(part) else { return }
    saveAll()
    if unsaved.contains(part) { hasFailedToSave = true }
  }

  private func saveAll() {
    for part in unsaved {
      do {
        try store.save(part, of: state.records)
        unsaved.remove(part)
      } catch {
        logger.error("what is known of apps cannot be kept", metadata: ["error": "\(error)"])
      }
    }
  }

  private func tick() {
    saveAll()
    perform(state.tick(now: now))
    if !state.hasDeadlines, unsaved.isEmpty { setTicking(false) }
  }

  private func setTicking(_ isTicking: Bool) {
    guard isTicking != self.isTicking else { return }
    self.isTicking = isTicking
    if isTicking {
      ticks.schedule(deadline: .now() + Self.tickInterval, repeating: Self.tickInterval)
    } else {
      ticks.schedule(deadline: .distantFuture)
    }
  }

  /// Says goodbye to all, and calls `done` when the last connection is gone.
  func stop(done: @escaping @Sendable () -> Void) {
    queue.async {
      self.ticks.cancel()
      self.compositor.stop()
      self.saveAll()
      self.allClosed = done
      for number in self.connections.keys.sorted() {
        self.perform(self.state.end(number, .shuttingDown))
      }
      self.tellIfAllClosed()
    }
  }
}

extension SocketPair {
  /// Both numbers, which from now on the caller has to close.
  consuming fileprivate func ends() -> (Int32, Int32) {
    let first = first
    let second = second
    return (first.takeDescriptor().take(), second.takeDescriptor().take())
  }
}
