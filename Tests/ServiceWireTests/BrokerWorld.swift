import Foundation
import SodiumPrimitives

@testable import ServiceWire

/// A broker's state and clients that talk to it by hand.
final class BrokerWorld {
  var state: BrokerState
  var now: UInt64 = 1_000_000
  /// How far the clock on the wall is from the other one.
  var dateOffset: UInt64 = 0
  var date: UInt64 { now + dateOffset }
  var sent: [ConnectionNumber: [WireBrokerMessage]] = [:]
  var closed: [ConnectionNumber: ProtocolFault] = [:]
  var details: [ConnectionNumber: String] = [:]
  /// Connections without room: what there is more for them waits.
  var full: Set<ConnectionNumber> = []
  private var owed: Set<ConnectionNumber> = []
  var introductions: [(dialler: ConnectionNumber, acceptor: ConnectionNumber, ticket: Data)] = []
  /// Whether descriptor lanes have room.
  var hasRoomForIntroductions = true
  var starts: [String] = []
  var endedPrograms: [String] = []
  var saved: [BrokerRecords.Part] = []
  static let administratorKey = key("administrator")
  static let brokerKey = key("broker")

  /// Something as long as a public key.
  static func key(_ text: String) -> Data { Data((text + String(repeating: " ", count: 32)).utf8.prefix(32)) }
  /// What the compositor answers; nil: not at once.
  var compositor: Bool? = true
  var asked: [FrontChange] = []
  private var nextConnection: UInt64 = 1
  private var nextQuestion: UInt64 = 1

  /// Takes any number of new apps, unless the test says otherwise.
  init(
    records: BrokerRecords = BrokerRecords(), limits: BrokerLimits = BrokerLimits(),
    plainApps: BrokerAdmission = .open(.max)
  ) {
    var limits = limits
    limits.plainApps = plainApps
    state = BrokerState(
      publicKey: Self.brokerKey, administratorKey: Self.administratorKey, records: records,
      limits: limits, programFault: { $0.hasPrefix("/tmp/") ? "\($0) belongs to another user" : nil })
  }

  func perform(_ outputs: [BrokerOutput]) {
    for output in outputs {
      switch output {
      case .send(let message, let to): sent[to, default: []].append(message)
      case .close(let number, let fault, let detail):
        closed[number] = fault
        details[number] = detail
      case .more(let number):
        if full.contains(number) { owed.insert(number) } else { perform(state.continue(number)) }
      case .introduce(let introduction):
        guard hasRoomForIntroductions else {
          sent[introduction.dialler, default: []].append(introduction.refusal)
          continue
        }
        sent[introduction.dialler, default: []] += [introduction.toDialler, introduction.answer]
        sent[introduction.acceptor, default: []].append(introduction.toAcceptor)
        introductions.append((introduction.dialler, introduction.acceptor, introduction.ticket))
      case .start(let appID, _, _): starts.append(appID)
      case .endProgram(let appID): endedPrograms.append(appID)
      case .askCompositor(_, let change):
        if let compositor {
          perform(state.compositorAnswered(change, isDone: compositor, now: now))
        } else {
          asked.append(change)
        }
      case .save(let part): saved.append(part)
      case .require, .stopAskingCompositor: break
      }
    }
  }

  /// The connection has room again, `once`: for one message only.
  func makeRoom(_ number: ConnectionNumber, once: Bool = false) {
    if !once { full.remove(number) }
    if owed.remove(number) != nil { perform(state.continue(number)) }
  }

  /// Each connection is of a process of its own, unless the test says otherwise.
  func connect(
    key: String? = "key", process: Int32? = nil, origin: BrokerOrigin = .plain
  ) -> ConnectionNumber {
    let number = ConnectionNumber(nextConnection)
    nextConnection += 1
    perform(
      state.connected(number, process: process ?? Int32(number.number), origin: origin, now: now))
    if let key { state.authenticated(number, publicKey: Self.key(key)) }
    return number
  }

  func send(_ message: WireBrokerMessage, from number: ConnectionNumber) {
    perform(state.receive(message, from: number, now: now, date: date))
  }

  func disconnect(_ number: ConnectionNumber) { perform(state.disconnected(number)) }

  func tick(_ milliseconds: UInt64) {
    now += milliseconds
    perform(state.tick(now: now))
  }

  func enrol(
    _ appID: String, key: String? = nil, user: String = "u", state: WireAppState = .running,
    origin: BrokerOrigin = .plain, changing change: (inout WireEnrol) -> Void = { _ in }
  ) -> ConnectionNumber {
    let number = connect(key: key ?? "key of \(appID)", origin: origin)
    var enrol = WireEnrol.with {
      $0.version = 1
      $0.appID = appID
      $0.activationUser = user
      $0.state = state
    }
    change(&enrol)
    let message = enrol
    send(.with { $0.enrol = message }, from: number)
    return number
  }

  /// A client that administers, or not.
  func attend(administers: Bool = true, key: Data = administratorKey) -> ConnectionNumber {
    let number = connect(key: String(decoding: key, as: UTF8.self))
    send(
      .with {
        $0.attend.version = 1
        $0.attend.name = "tool"
        $0.attend.administers = administers
      }, from: number)
    return number
  }

  /// Installs an app that has registered and does not run.
  func installStopped(_ appID: String) {
    let app = enrol(appID)
    register(app)
    install(appID, "/usr/bin/app")
    disconnect(app)
  }

  /// The apps of which an app was told that they wait for it.
  func waitingPeers(_ number: ConnectionNumber) -> [String] {
    sent[number, default: []].compactMap {
      if case .peerWaits(let message) = $0.kind { message.appID } else { nil }
    }
  }

  /// Asks, and returns the number of the question.
  @discardableResult
  func ask(_ number: ConnectionNumber, _ kind: WireQuestion.OneOf_Kind) -> UInt64 {
    let question = nextQuestion
    nextQuestion += 1
    send(
      .with {
        $0.question = .with {
          $0.number = question
          $0.kind = kind
        }
      }, from: number)
    return question
  }

  func answers(_ number: ConnectionNumber, _ question: UInt64) -> [WireAnswer] {
    (sent[number] ?? []).compactMap {
      $0.kind.flatMap { if case .answer(let answer) = $0 { answer } else { nil } }
    }
    .filter { $0.number == question }
  }

  /// The error that a question was answered with; 0 when it was done, nil when it waits.
  func error(_ number: ConnectionNumber, _ kind: WireQuestion.OneOf_Kind) -> UInt32? {
    answers(number, ask(number, kind)).last.map { $0.failure.error }
  }

  /// An administrator names the program that starts an app.
  func install(_ appID: String, _ path: String) {
    let tool = attend()
    ask(
      tool,
      .administer(
        .with {
          $0.install.appID = appID
          $0.install.program.path = path
        }))
    disconnect(tool)
  }

  func register(_ number: ConnectionNumber, _ services: [(String, String)] = []) {
    ask(
      number,
      .register(
        .with {
          $0.name = "App"
          $0.services = services.map { id, version in
            .with {
              $0.id = id
              $0.version = version
            }
          }
        }))
  }

  func find(_ number: ConnectionNumber, _ service: String? = nil) -> [String] {
    let question = ask(number, .find(.with { if let service { $0.serviceID = service } }))
    return answers(number, question).flatMap { $0.providers.providers.map(\.appID) }
  }

  /// The error that a question waits for or has; nil while it waits.
  func failure(_ number: ConnectionNumber, _ question: UInt64) -> UInt32? {
    answers(number, question).last?.failure.error
  }

  func changes(_ number: ConnectionNumber) -> [WireProvidersChanged] {
    (sent[number] ?? []).compactMap {
      if case .providersChanged(let change)? = $0.kind { change } else { nil }
    }
  }

  func last(_ number: ConnectionNumber) -> WireBrokerMessage? { sent[number]?.last }
}
