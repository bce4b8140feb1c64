import Foundation
import ServiceValues

/// The broker as a value: who is connected, registered and in front, who watches whom, and who may call whom (SERVICE-PROTOCOL.md, "The
/// broker connection"). No socket, no clock, no file: whoever owns it brings messages and the time, and does what comes out.
///
/// It brokers and nothing else: no request, reply or file ever reaches it.
package struct BrokerState: Sendable {
  package let limits: BrokerLimits
  let authority: any BrokerAuthority
  package internal(set) var records: BrokerRecords
  var connections: [ConnectionNumber: Connection] = [:]
  /// The connection of each app that runs.
  var running: [String: ConnectionNumber] = [:]
  package internal(set) var front: String?
  var frontChanges: [FrontChange: PendingFront] = [:]
  var nextFrontChange: UInt64 = 1
  /// Dials that wait until the other app has started or is unlocked.
  var waiting: [WaitingDial] = []

  struct Connection: Sendable {
    enum Phase: Sendable, Equatable {
      case awaitingHello
      case awaitingProof(appNonce: Data, brokerNonce: Data)
      case enrolled(appID: String)
      case attending
    }

    var phase = Phase.awaitingHello
    let opened: UInt64
    /// Of the peer, as the kernel says.
    let process: Int32
    var appState = WireAppState.running
    var renewalNonce: Data?
    var watches: [UInt64: Watch] = [:]
    /// Numbers of questions that wait for an answer.
    var questions: Set<UInt64> = []

    var appID: String? { if case .enrolled(let appID) = phase { appID } else { nil } }
    var hasBegun: Bool { appID != nil || phase == .attending }
  }

  struct Watch: Sendable {
    let filter: WireFind
    /// What the watcher knows.
    var known: [String: WireProvider]
  }

  struct PendingFront: Sendable {
    let asker: ConnectionNumber
    let question: UInt64
    let appID: String?
    let previous: String?
  }

  struct WaitingDial: Sendable {
    let dialler: ConnectionNumber
    let question: UInt64
    let appID: String
    /// Whether it waits for the app to be unlocked; else for its start.
    var isRunning: Bool
    var until: UInt64
  }

  package static let versionMax: UInt32 = 1
  package static let nonceByteCount = 32

  package init(
    authority: any BrokerAuthority, records: BrokerRecords = BrokerRecords(),
    limits: BrokerLimits = BrokerLimits()
  ) {
    self.authority = authority
    self.records = records
    self.limits = limits
  }

  package var connectionCount: Int { connections.count }

  // MARK: Connections

  /// Somebody of the right user has connected.
  package mutating func connected(_ number: ConnectionNumber, process: Int32, now: UInt64) -> [BrokerOutput] {
    precondition(connections[number] == nil, "the number of a connection is used once")
    guard connections.count < limits.connectionCountMax else {
      return [.close(number, .limitExceeded, detail: "broker connections")]
    }
    var outputs: [BrokerOutput] = []
    let beginning = connections.filter { !$0.value.hasBegun }
    if beginning.count >= limits.beginningCountMax, let oldest = beginning.keys.min() {
      close(oldest, .limitExceeded, detail: "connections that did not enrol", now: now, &outputs)
    }
    connections[number] = Connection(opened: now, process: process)
    return outputs
  }

  /// The connection has ended, in good order or not.
  package mutating func disconnected(_ number: ConnectionNumber, now: UInt64) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    forget(number, now: now, &outputs)
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
    waiting.removeAll { $0.dialler == number }
    guard let appID = connection.appID, running[appID] == number else { return }
    running[appID] = nil
    // Dials that waited for its unlocking: it is not there any more.
    refuseWaiting(for: appID, with: .applicationNotFound, &outputs) { $0.isRunning }
    if front == appID { front = nil }
    tellWatchers(about: appID, &outputs)
  }

  /// Called every second or so.
  package mutating func tick(now: UInt64) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    for (number, connection) in connections.sorted(by: { $0.key < $1.key })
    where !connection.hasBegun && now >= connection.opened + limits.beginningTime {
      close(number, .timedOut, now: now, &outputs)
    }
    let late = waiting.filter { now >= $0.until }
    waiting.removeAll { now >= $0.until }
    for dial in late {
      fail(dial.question, dial.isRunning ? .notAllowed : .applicationNotFound, on: dial.dialler, &outputs)
    }
    return outputs
  }

  // MARK: Receiving

  struct Fault: Error {
    var fault: ProtocolFault
    var detail = ""
  }

  package mutating func receive(
    _ message: WireBrokerMessage, from number: ConnectionNumber, now: UInt64
  ) -> [BrokerOutput] {
    guard let connection = connections[number] else { return [] }
    var outputs: [BrokerOutput] = []
    do throws(Fault) {
      switch (message.kind, connection.phase) {
      case (.goodbye, _): close(number, .noError, now: now, &outputs)
      case (.hello(let hello), .awaitingHello): try take(hello, number, &outputs)
      case (.enrol(let enrol), .awaitingProof(let appNonce, let brokerNonce)):
        try take(enrol, number, appNonce, brokerNonce, now, &outputs)
      case (.attend(let attend), .awaitingProof):
        guard attend.name.utf8.count <= limits.nameByteCountMax else { throw Fault(fault: .malformed) }
        connections[number]?.phase = .attending
        outputs.append(.send(.with { $0.enrolled = WireEnrolled() }, to: number))
      case (.question(let question), .enrolled), (.question(let question), .attending):
        try take(question, number, now, &outputs)
      case (nil, _): throw Fault(fault: .malformed)
      default: throw Fault(fault: .unexpectedMessage)
      }
    } catch {
      close(number, error.fault, detail: error.detail, now: now, &outputs)
    }
    return outputs
  }

  private mutating func take(
    _ hello: WireBrokerHello, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard hello.version >= 1 else { throw Fault(fault: .versionNotSupported) }
    guard hello.nonce.count == Self.nonceByteCount else { throw Fault(fault: .malformed) }
    let nonce = authority.nonce()
    let proof = try signed(SignedText.broker(appNonce: hello.nonce, brokerNonce: nonce))
    connections[number]?.phase = .awaitingProof(appNonce: hello.nonce, brokerNonce: nonce)
    let certificate = authority.certificate
    outputs.append(
      .send(
        .with {
          $0.challenge = .with {
            $0.version = min(hello.version, Self.versionMax)
            $0.nonce = nonce
            $0.authority = certificate
            $0.proof = proof
          }
        }, to: number))
  }

  private func signed(_ text: Data) throws(Fault) -> Data {
    do { return try authority.sign(text) } catch { throw Fault(fault: .brokerNotTrusted, detail: "\(error)") }
  }

  private mutating func take(
    _ enrol: WireEnrol, _ number: ConnectionNumber, _ appNonce: Data, _ brokerNonce: Data, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    let appID = enrol.appID
    guard (try? ApplicationID(appID)) != nil, enrol.activationUser.utf8.count <= limits.nameByteCountMax,
      !enrol.activationUser.isEmpty, enrol.publicKey.count <= 256, enrol.proof.count <= 256
    else { throw Fault(fault: .malformed) }
    let text = SignedText.app(
      brokerNonce: brokerNonce, appNonce: appNonce, authority: authority.certificate, appID: appID,
      activationUser: enrol.activationUser)
    guard authority.isSigned(text, by: enrol.publicKey, enrol.proof) else {
      throw Fault(fault: .keyNotPinned)
    }
    if let known = records.apps[appID] {
      guard known.publicKey == enrol.publicKey else { throw Fault(fault: .keyNotPinned) }
    } else {
      guard records.apps.count < limits.appCountMax else {
        throw Fault(fault: .limitExceeded, detail: "apps registered")
      }
    }
    let leaf = try issue(appID, enrol.activationUser, enrol.publicKey, now)
    let known = records.apps[appID]
    var app =
      known
      ?? BrokerRecords.App(
        publicKey: enrol.publicKey, activationUser: enrol.activationUser, enrolled: now)
    app.activationUser = enrol.activationUser
    if app != known {
      records.apps[appID] = app
      outputs.append(.save)
    }
    if let earlier = running[appID] { close(earlier, .replaced, now: now, &outputs) }
    connections[number]?.phase = .enrolled(appID: appID)
    running[appID] = number
    outputs.append(.send(.with { $0.enrolled = leaf }, to: number))
    tellWatchers(about: appID, &outputs)
    continueDials(to: appID, now: now, &outputs)
  }

  func issue(
    _ appID: String, _ activationUser: String, _ publicKey: Data, _ now: UInt64
  ) throws(Fault) -> WireEnrolled {
    let notAfter = now + limits.certificateLife
    let certificate: Data
    do {
      certificate = try authority.issue(
        appID: appID, activationUser: activationUser, publicKey: publicKey, notAfter: notAfter)
    } catch {
      throw Fault(fault: .keyNotPinned, detail: "\(error)")
    }
    let policy = policy(of: appID)
    return .with {
      $0.certificate = certificate
      $0.notAfter = Int64(notAfter)
      $0.policy = policy
    }
  }

  // MARK: Answers

  func answer(_ question: UInt64, to number: ConnectionNumber, _ fill: (inout WireAnswer) -> Void)
    -> BrokerOutput
  {
    .send(
      .with {
        $0.answer = .with {
          $0.number = question
          fill(&$0)
        }
      }, to: number)
  }

  /// The answer is an error.
  mutating func fail(
    _ question: UInt64, _ code: ServicesError.Code, detail: String = "", on number: ConnectionNumber,
    _ outputs: inout [BrokerOutput]
  ) {
    guard connections[number]?.questions.remove(question) != nil else { return }
    outputs.append(
      answer(question, to: number) {
        $0.failure = .with {
          $0.error = UInt32(code.rawValue)
          $0.detail = detail
        }
      })
  }

  mutating func done(
    _ question: UInt64, on number: ConnectionNumber, _ outputs: inout [BrokerOutput],
    _ fill: (inout WireAnswer) -> Void = { _ in }
  ) {
    guard connections[number]?.questions.remove(question) != nil else { return }
    outputs.append(answer(question, to: number, fill))
  }
}
