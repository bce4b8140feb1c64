package import Foundation
import ServiceValues
import SodiumPrimitives

/// The broker as a value: who is connected, registered and in front, who watches whom, and who may call whom (SERVICE-PROTOCOL.md, "The
/// broker connection"). No socket, no clock, no file: whoever owns it brings messages and the time, and does what comes out.
///
/// `now` is milliseconds of a clock that nobody sets, for whatever waits; `date` milliseconds since 1970, for what others read.
///
/// It brokers and nothing else: no request, reply or file ever reaches it.
package struct BrokerState: Sendable {
  package let limits: BrokerLimits
  /// The broker's own public key.
  let publicKey: Data
  /// The public key of administrators.
  let administratorKey: Data
  package internal(set) var records: BrokerRecords
  var connections: [ConnectionNumber: Connection] = [:]
  /// The connection of each app that runs.
  var running: [String: ConnectionNumber] = [:]
  /// Connections with watches.
  var watchers: Set<ConnectionNumber> = []
  package internal(set) var front: String?
  /// The change that the compositor is asked for, and those that wait for it.
  var frontChange: AskedFront?
  var frontWishes: [FrontWish] = []
  var nextFrontChange: UInt64 = 1
  /// Dials that wait until the other app has started or is unlocked, by that app.
  var waiting: [String: [WaitingDial]] = [:]
  /// Programs that were started less than *start time* ago.
  var starts: [String: Start] = [:]
  /// Apps that wait to be started.
  var startQueue: [String] = []
  /// Behind the numbers by which apps know sandboxes.
  let originSecret = Random.bytes(32)
  /// When a registrant has used up none of its registrations any more.
  var registeredUntil: [Registrant: UInt64] = [:]

  /// Who is charged for a registration.
  enum Registrant: Hashable, Sendable {
    case sandbox(String)
    case app(String)
  }

  /// Who is charged for a connection: a sandbox as a whole, else a process.
  package enum Owner: Hashable, Sendable {
    case sandbox(String)
    case process(Int32)
  }

  struct Connection: Sendable {
    enum Phase: Sendable, Equatable {
      case handshaking
      case awaitingEnrolment(publicKey: Data)
      /// Waits for an administrator's approval.
      case pending(WireEnrol, publicKey: Data)
      case enrolled(appID: String)
      case attending(administers: Bool)
    }

    var phase = Phase.handshaking
    let opened: UInt64
    /// Of the peer, as the kernel says.
    let process: Int32
    let origin: BrokerOrigin
    var appState = WireAppState.running
    /// Numbers of questions that wait for an answer.
    var questions: Set<UInt64> = []
    var watches: [UInt64: Watch] = [:]
    /// Questions whose answers are long: each is given when the connection has room.
    var lists: [List] = []
    /// What came last when there was room was a list, and not what a watch tells.
    var wasList = false
    /// The watch that was told something last.
    var lastWatch: UInt64 = 0
    var isPolicyDirty = false
    /// Whether `more` was put out and `continue` did not follow yet.
    var isMoreAsked = false

    var owner: Owner { origin == .plain ? .process(process) : .sandbox(origin.label) }
    var appID: String? { if case .enrolled(let appID) = phase { appID } else { nil } }
    var administers: Bool { phase == .attending(administers: true) }
    var isAttending: Bool { if case .attending = phase { true } else { false } }
    var pending: (enrol: WireEnrol, publicKey: Data)? {
      if case .pending(let enrol, let publicKey) = phase { (enrol, publicKey) } else { nil }
    }
    var hasBegun: Bool { appID != nil || isAttending || pending != nil }
  }

  package static let versionMax: UInt32 = 1
  package static let ticketByteCount = 32

  /// `publicKey` is the broker's own. Whoever proves `administratorKey` in the handshake may administer.
  package init(
    publicKey: Data, administratorKey: Data, records: BrokerRecords = BrokerRecords(),
    limits: BrokerLimits = BrokerLimits()
  ) {
    self.publicKey = publicKey
    self.administratorKey = administratorKey
    self.records = records
    self.limits = limits
  }

  package var connectionCount: Int { connections.count }

  /// The app of a connection, for a log.
  package func appID(of number: ConnectionNumber) -> String? { connections[number]?.appID }

  package func owner(of number: ConnectionNumber) -> Owner? { connections[number]?.owner }

  /// Those of the same owner, with this one.
  package func connections(ofOwnerOf number: ConnectionNumber) -> [ConnectionNumber] {
    guard let owner = connections[number]?.owner else { return [] }
    return connections.filter { $0.value.owner == owner }.map(\.key)
  }

  // MARK: Connections

  /// Somebody of the right user has connected, and the handshake begins.
  package mutating func connected(
    _ number: ConnectionNumber, process: Int32, origin: BrokerOrigin = .plain, now: UInt64
  ) -> [BrokerOutput] {
    precondition(connections[number] == nil, "the number of a connection is used once")
    let connection = Connection(opened: now, process: process, origin: origin)
    guard mayHaveAnother(connection.owner, of: limits.connectionCountMax, where: { _ in true }),
      origin == .plain
        || connections.values.count(where: { $0.owner == connection.owner })
          < limits.sandboxConnectionCountMax
    else {
      return [.close(number, .limitExceeded, detail: "broker connections")]
    }
    connections[number] = connection
    var outputs: [BrokerOutput] = []
    let beginning = connections.filter { !$0.value.hasBegun }
    if beginning.count > limits.beginningCountMax {
      // Who has the most of them loses its oldest, and one of several at random: whoever connects fast
      // keeps nobody else out.
      let counts = Dictionary(grouping: beginning.keys) { connections[$0]?.owner }
      let most = counts.values.map(\.count).max()
      let oldest = counts.values.filter { $0.count == most }.randomElement()?.min()
      if let oldest {
        close(oldest, .limitExceeded, detail: "connections that did not enrol", now: now, &outputs)
      }
    }
    return outputs
  }

  /// Whether an owner may have one connection more of a kind of which there are `countMax`: at most half
  /// of what others leave, and always a few.
  func mayHaveAnother(
    _ owner: Owner, of countMax: Int, where isOfKind: (Connection) -> Bool
  ) -> Bool {
    let all = connections.values.filter(isOfKind)
    let own = all.count { $0.owner == owner }
    return all.count < countMax
      && own < max(Self.connectionCountMin, (countMax - (all.count - own)) / 2)
  }

  private static let connectionCountMin = 8

  /// The peer has shown this static key in the handshake; that it has the private key, the first message proves.
  package mutating func authenticated(_ number: ConnectionNumber, publicKey: Data) {
    guard connections[number]?.phase == .handshaking else { return }
    connections[number]?.phase = .awaitingEnrolment(publicKey: publicKey)
  }

  /// The connection has ended, in good order or not.
  package mutating func disconnected(_ number: ConnectionNumber, now: UInt64) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    forget(number, now: now, &outputs)
    return outputs
  }

  /// Ends a connection for a reason that its owner found. Does nothing when it has ended.
  package mutating func end(
    _ number: ConnectionNumber, _ fault: ProtocolFault, detail: String = "", now: UInt64
  ) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    if connections[number] != nil { close(number, fault, detail: detail, now: now, &outputs) }
    return outputs
  }

  mutating func close(
    _ number: ConnectionNumber, _ fault: ProtocolFault, detail: String = "", now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) {
    outputs.append(.close(number, fault, detail: detail))
    forget(number, now: now, &outputs)
  }

  private mutating func forget(_ number: ConnectionNumber, now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard let connection = connections.removeValue(forKey: number) else { return }
    watchers.remove(number)
    frontWishes.removeAll { $0.asker == number }
    if !connection.questions.isEmpty {
      for target in waiting.keys { removeWaiting(for: target) { $0.dialler == number } }
    }
    guard let appID = connection.appID, running[appID] == number else { return }
    running[appID] = nil
    // Dials that waited for its unlocking: it is not there any more.
    refuseWaiting(for: appID, with: .applicationNotFound, &outputs) { $0.isRunning }
    if front == appID { front = nil }
    tellWatchers(about: appID, &outputs)
  }

  /// Whether ``tick(now:)`` will have something to do.
  package var hasDeadlines: Bool {
    !registeredUntil.isEmpty || !starts.isEmpty || !startQueue.isEmpty || !waiting.isEmpty
      || frontChange != nil || connections.values.contains { !$0.hasBegun }
  }

  /// Called every second or so, while something has a deadline.
  package mutating func tick(now: UInt64) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    for (number, connection) in connections.sorted(by: { $0.key < $1.key })
    where !connection.hasBegun && now >= connection.opened + limits.beginningTime {
      close(number, .timedOut, now: now, &outputs)
    }
    tickRegistrations(now: now)
    tickStarts(now: now, &outputs)
    tickFront(now: now, &outputs)
    return outputs
  }

  // MARK: Receiving

  struct Fault: Error {
    var fault: ProtocolFault
    var detail = ""
  }

  package mutating func receive(
    _ message: WireBrokerMessage, from number: ConnectionNumber, now: UInt64, date: UInt64
  ) -> [BrokerOutput] {
    guard let connection = connections[number] else { return [] }
    var outputs: [BrokerOutput] = []
    do throws(Fault) {
      switch (message.kind, connection.phase) {
      case (.goodbye, _): close(number, .noError, now: now, &outputs)
      case (.enrol(let enrol), .awaitingEnrolment(let publicKey)):
        try take(enrol, number, publicKey, now, date, &outputs)
      case (.attend(let attend), .awaitingEnrolment(let publicKey)):
        try take(attend, number, publicKey, &outputs)
      case (.question(let question), .enrolled), (.question(let question), .attending):
        try take(question, number, now, date, &outputs)
      case (nil, _): throw Fault(fault: .malformed)
      default: throw Fault(fault: .unexpectedMessage)
      }
    } catch {
      close(number, error.fault, detail: error.detail, now: now, &outputs)
    }
    return outputs
  }

  private mutating func take(
    _ attend: WireAttend, _ number: ConnectionNumber, _ publicKey: Data, _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard attend.version >= 1 else { throw Fault(fault: .versionNotSupported) }
    guard attend.name.utf8.count <= limits.nameByteCountMax else { throw Fault(fault: .malformed) }
    guard !attend.administers || publicKey == administratorKey else { throw Fault(fault: .keyNotPinned) }
    // Administrators are needed most when others take all there is.
    guard
      attend.administers
        || connections[number].map({
          mayHaveAnother($0.owner, of: limits.attendingCountMax, where: \.isAttending)
        }) == true
    else { throw Fault(fault: .limitExceeded, detail: "attending connections") }
    connections[number]?.phase = .attending(administers: attend.administers)
    outputs.append(.send(.with { $0.enrolled.version = min(attend.version, Self.versionMax) }, to: number))
  }

  /// Throws `malformed` for a text of a peer that is no app id: only what passed may be compared or looked up.
  func checkAppID(_ text: String) throws(Fault) {
    guard (try? ApplicationID(text)) != nil else { throw Fault(fault: .malformed) }
  }

  func fileName(_ appID: String) -> String { BrokerRecords.fileName(appID) }

  // MARK: Answers

  func answerMessage(_ question: UInt64, _ fill: (inout WireAnswer) -> Void) -> WireBrokerMessage {
    .with {
      $0.answer.number = question
      fill(&$0.answer)
    }
  }

  /// The answer is an error.
  mutating func fail(
    _ question: UInt64, _ code: ServicesError.Code, detail: String = "", on number: ConnectionNumber,
    _ outputs: inout [BrokerOutput]
  ) {
    guard connections[number]?.questions.remove(question) != nil else { return }
    let message = answerMessage(question) {
      $0.failure.error = UInt32(code.rawValue)
      $0.failure.detail = detail
    }
    outputs.append(.send(message, to: number))
  }

  mutating func done(
    _ question: UInt64, on number: ConnectionNumber, _ outputs: inout [BrokerOutput],
    _ fill: (inout WireAnswer) -> Void = { _ in }
  ) {
    guard connections[number]?.questions.remove(question) != nil else { return }
    outputs.append(.send(answerMessage(question, fill), to: number))
  }
}

extension WireAppState {
  /// Known, and not that the app does not run.
  var isOfOneThatRuns: Bool {
    switch self {
    case .running, .suspended, .locked: true
    case .notRunning, .hidden, .UNRECOGNIZED: false
    }
  }
}
