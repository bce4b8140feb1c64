package import Foundation
import ServiceValues
import SodiumPrimitives

/// The broker as a value: who is connected, registered and in front, who watches whom, and who may
/// call whom (BROKER-PROTOCOL.md). No socket, no clock, no file: whoever
/// owns it brings messages and the time, and does what comes out.
///
/// Its parts are values that keep their own invariants; what is written here is what one of them
/// means for the others.
///
/// `now` is milliseconds of a clock that nobody sets, for whatever waits; `date` milliseconds since
/// 1970, for what others read.
///
/// It brokers and nothing else: no request, reply or file ever reaches it.
package struct BrokerState: Sendable {
  package let limits: BrokerLimits
  /// The broker's own public key.
  let publicKey: Data
  /// The public key of administrators.
  let administratorKey: Data
  package internal(set) var records: BrokerRecords
  var connections: BrokerConnections
  var answers = BrokerAnswers()
  var presence = AppPresence()
  var pending: PendingEnrolments
  var feeds: BrokerFeeds
  var frontChanges: FrontChanges
  var dials: WaitingDials
  var paces: BrokerPaces
  /// Behind the numbers by which apps know sandboxes: the same as long as the broker has its key, so that a sandbox has one number, and
  /// what an app keeps for it one sum, also after the broker has started anew.
  let originSecret: [UInt8]
  /// Why a program at an absolute path is not to be started; nil when it may be.
  let programFault: @Sendable (String) -> String?

  package static let versionMax: UInt32 = 1
  package static let ticketByteCount = 32

  /// `publicKey` is the broker's own, `originSecret` 32 bytes that nobody else knows. Whoever proves `administratorKey` in the handshake may
  /// administer.
  package init(
    publicKey: Data, administratorKey: Data, originSecret: [UInt8] = Random.bytes(32),
    records: BrokerRecords = BrokerRecords(), limits: BrokerLimits = BrokerLimits(),
    programFault: @escaping @Sendable (String) -> String?
  ) {
    self.publicKey = publicKey
    self.originSecret = originSecret
    self.administratorKey = administratorKey
    self.records = records
    self.limits = limits
    self.programFault = programFault
    connections = BrokerConnections(limits: limits)
    pending = PendingEnrolments(limits: limits)
    feeds = BrokerFeeds(limits: limits)
    frontChanges = FrontChanges(limits: limits)
    dials = WaitingDials(limits: limits)
    paces = BrokerPaces(limits: limits)
  }

  package var connectionCount: Int { connections.count }

  /// The app of a connection, for a log.
  package func appID(of number: ConnectionNumber) -> String? { connections[number]?.appID }

  package func owner(of number: ConnectionNumber) -> BrokerOwner? { connections[number]?.owner }

  /// Those of the same owner, with this one.
  package func connections(ofOwnerOf number: ConnectionNumber) -> [ConnectionNumber] {
    connections[number].map { connections.numbers(of: $0.owner) } ?? []
  }

  // MARK: Connections

  /// Somebody of the right user has connected, and the handshake begins.
  package mutating func connected(
    _ number: ConnectionNumber, process: Int32, origin: BrokerOrigin = .plain, now: UInt64
  ) -> [BrokerOutput] {
    let connection = BrokerConnection(opened: now, process: process, origin: origin)
    guard connections.insert(number, connection) else {
      return [.close(number, .limitExceeded, detail: "broker connections")]
    }
    if let surplus = connections.surplus() {
      close(surplus, .limitExceeded, detail: "connections that did not enrol")
    }
    return answers.takeOutputs()
  }

  /// The peer has shown this static key in the handshake; that it has the private key, the first
  /// message proves.
  package mutating func authenticated(_ number: ConnectionNumber, publicKey: Data) {
    guard connections[number]?.phase == .handshaking else { return }
    connections.setPhase(.awaitingEnrolment(publicKey: publicKey), of: number)
  }

  /// The connection has ended, in good order or not.
  package mutating func disconnected(_ number: ConnectionNumber) -> [BrokerOutput] {
    forget(number)
    return answers.takeOutputs()
  }

  /// Ends a connection for a reason that its owner found. Does nothing when it has ended.
  package mutating func end(
    _ number: ConnectionNumber, _ fault: ProtocolFault, detail: String = ""
  ) -> [BrokerOutput] {
    if connections[number] != nil { close(number, fault, detail: detail) }
    return answers.takeOutputs()
  }

  mutating func close(
    _ number: ConnectionNumber, _ fault: ProtocolFault, detail: String = ""
  ) {
    answers.append(.close(number, fault, detail: detail))
    forget(number)
  }

  private mutating func forget(_ number: ConnectionNumber) {
    guard let connection = connections.remove(number) else { return }
    answers.end(number)
    pending.remove(number)
    feeds.end(number)
    frontChanges.remove(asker: number)
    dials.remove(dialler: number)
    guard let appID = connection.appID, presence.end(appID, number) else { return }
    if appID == ApplicationID.launcher.text { tellTrafficIsWanted() }
    // Dials that waited for its unlocking: it is not there any more.
    dials.refuse(appID, .applicationNotFound, &answers) { $0.isRunning }
    feeds.noteChange(of: appID, &answers)
  }

  /// Whether ``tick(now:)`` will have something to do.
  package var hasDeadlines: Bool {
    !paces.isEmpty || !dials.isEmpty || frontChanges.isAsked
      || connections.hasBeginning
  }

  /// Called every second or so, while something has a deadline.
  package mutating func tick(now: UInt64) -> [BrokerOutput] {
    for number in connections.overdue(now: now) { close(number, .timedOut) }
    paces.registrations.tick(now: now)
    for appID in paces.news.takeLate(now: now) { feeds.noteChange(of: appID, &answers) }
    for appID in paces.traffic.takeLate(now: now) { feeds.noteTraffic(of: appID, &answers) }
    dials.endStarts(now: now, &answers)
    startNext(now: now)
    dials.refuseOverdue(now: now, &answers)
    if let change = frontChanges.overdue(now: now) {
      answers.append(.stopAskingCompositor)
      endFrontChange(change, isDone: false, now: now)
    }
    return answers.takeOutputs()
  }

  /// The app is here, or in another state.
  mutating func tellNews(of appID: String, from origin: BrokerOrigin, now: UInt64) {
    if paces.news.mayTell(of: appID, from: origin, now: now) { feeds.noteChange(of: appID, &answers) }
  }

  // MARK: Receiving

  package mutating func receive(
    _ message: WireBrokerMessage, from number: ConnectionNumber, now: UInt64, date: UInt64
  ) -> [BrokerOutput] {
    guard let connection = connections[number] else { return [] }
    do throws(ProtocolViolation) {
      switch (message.kind, connection.phase) {
      case (.goodbye, _): close(number, .noError)
      case (.enrol(let enrol), .awaitingEnrolment(let publicKey)):
        let enrolment = BrokerEnrolment(
          connection: number, origin: connection.origin, process: connection.process, enrol: enrol,
          publicKey: publicKey)
        try take(enrolment, now: now, date: date)
      case (.attend(let attend), .awaitingEnrolment(let publicKey)):
        try take(attend, number, connection.origin, publicKey)
      case (.question(let question), .enrolled), (.question(let question), .attending):
        try take(question, number, connection, now: now, date: date)
      case (nil, _): throw ProtocolViolation(fault: .malformed)
      default: throw ProtocolViolation(fault: .unexpectedMessage)
      }
    } catch {
      close(number, error.fault, detail: error.detail)
    }
    return answers.takeOutputs()
  }

  private mutating func take(
    _ attend: WireAttend, _ number: ConnectionNumber, _ origin: BrokerOrigin, _ publicKey: Data
  ) throws(ProtocolViolation) {
    guard attend.version >= 1 else { throw ProtocolViolation(fault: .versionNotSupported) }
    guard attend.name.utf8.count <= limits.nameByteCountMax else {
      throw ProtocolViolation(fault: .malformed)
    }
    guard !attend.administers || publicKey == administratorKey else {
      throw ProtocolViolation(fault: .keyNotPinned)
    }
    // Administrators are needed most when others take all there is.
    guard attend.administers || connections.mayAttend(number) else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "attending connections")
    }
    connections.setPhase(.attending(administers: attend.administers), of: number)
    feeds.begin(number, asker: BrokerAsker(appID: nil, origin: origin, administers: attend.administers))
    answers.send(to: number) { $0.enrolled.version = min(attend.version, Self.versionMax) }
  }

  /// The connection has room for what is new to it: some of it comes out, and `more` when that was
  /// not all.
  package mutating func `continue`(_ number: ConnectionNumber) -> [BrokerOutput] {
    let directory = AppDirectory(
      records: records, presence: presence, pending: pending, publicKey: publicKey,
      pageByteCount: limits.pageByteCount)
    feeds.continue(number, directory, &answers)
    return answers.takeOutputs()
  }
}
