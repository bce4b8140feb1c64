import Foundation
import OpenDynamicsTesting

@testable import ServiceWire

/// Signs by naming the key: whether a proof is right is all that the state machine wants to know. The real one is tested with its
/// cryptography where it is.
struct NamedKeyAuthority: BrokerAuthority {
  struct NoKey: Error {}

  let certificate = Data("authority".utf8)
  let fingerprint = Data("fingerprint".utf8)

  func nonce() -> Data { WireID.random().bytes + WireID.random().bytes }
  func sign(_ message: Data) throws -> Data { Self.sign(message, with: certificate) }
  func isSigned(_ message: Data, by publicKey: Data, _ signature: Data) -> Bool {
    signature == Self.sign(message, with: publicKey)
  }
  func fingerprint(of publicKey: Data) -> Data { publicKey }
  func issue(appID: String, activationUser: String, publicKey: Data, notAfter: UInt64) throws -> Data {
    guard !publicKey.isEmpty else { throw NoKey() }
    return Data("\(appID) \(activationUser) \(notAfter)".utf8)
  }

  static func sign(_ message: Data, with key: Data) -> Data {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in key + [0] + message { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return Data("\(hash)".utf8)
  }
}

/// A broker's state and clients that talk to it by hand.
final class BrokerWorld {
  var state: BrokerState
  var now: UInt64 = 1_000_000
  var sent: [ConnectionNumber: [WireBrokerMessage]] = [:]
  var closed: [ConnectionNumber: ProtocolFault] = [:]
  var introductions: [(dialler: ConnectionNumber, acceptor: ConnectionNumber, ticket: Data)] = []
  var starts: [String] = []
  var saves = 0
  /// What the compositor answers; nil: not at once.
  var compositor: Bool? = true
  var asked: [FrontChange] = []
  private var nextConnection: UInt64 = 1
  private var nextQuestion: UInt64 = 1

  init(records: BrokerRecords = BrokerRecords(), limits: BrokerLimits = BrokerLimits()) {
    state = BrokerState(authority: NamedKeyAuthority(), records: records, limits: limits)
  }

  func perform(_ outputs: [BrokerOutput]) {
    for output in outputs {
      switch output {
      case .send(let message, let to): sent[to, default: []].append(message)
      case .close(let number, let fault, _): closed[number] = fault
      case .introduce(let dialler, let one, let acceptor, let other):
        sent[dialler, default: []].append(one)
        sent[acceptor, default: []].append(other)
        introductions.append((dialler, acceptor, one.introduction.ticket))
      case .start(let appID, _, _): starts.append(appID)
      case .askCompositor(_, let change):
        if let compositor {
          perform(state.compositorAnswered(change, isDone: compositor, now: now))
        } else {
          asked.append(change)
        }
      case .save: saves += 1
      }
    }
  }

  func connect() -> ConnectionNumber {
    let number = ConnectionNumber(nextConnection)
    nextConnection += 1
    perform(state.connected(number, process: Int32(number.number), now: now))
    return number
  }

  func send(_ message: WireBrokerMessage, from number: ConnectionNumber) {
    perform(state.receive(message, from: number, now: now))
  }

  func disconnect(_ number: ConnectionNumber) { perform(state.disconnected(number, now: now)) }

  func tick(_ milliseconds: UInt64) {
    now += milliseconds
    perform(state.tick(now: now))
  }

  /// Sends the beginning up to the proof; the proof's text is over what the broker sent.
  func enrol(
    _ appID: String, key: String? = nil, user: String = "u", on number: ConnectionNumber? = nil,
    changing change: (inout WireEnrol) -> Void = { _ in }
  ) -> ConnectionNumber {
    let number = number ?? connect()
    let nonce = Data(repeating: 5, count: 32)
    send(
      .with {
        $0.hello = .with {
          $0.version = 1
          $0.nonce = nonce
        }
      }, from: number)
    guard let challenge = sent[number]?.last?.challenge else { return number }
    let publicKey = Data((key ?? "key of \(appID)").utf8)
    let text = SignedText.app(
      brokerNonce: challenge.nonce, appNonce: nonce, authority: challenge.authority, appID: appID,
      activationUser: user)
    var enrol = WireEnrol.with {
      $0.appID = appID
      $0.activationUser = user
      $0.publicKey = publicKey
      $0.proof = NamedKeyAuthority.sign(text, with: publicKey)
    }
    change(&enrol)
    let message = enrol
    send(.with { $0.enrol = message }, from: number)
    return number
  }

  func attend() -> ConnectionNumber {
    let number = connect()
    send(
      .with {
        $0.hello = .with {
          $0.version = 1
          $0.nonce = Data(repeating: 5, count: 32)
        }
      }, from: number)
    send(.with { $0.attend.name = "tool" }, from: number)
    return number
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

  func register(_ number: ConnectionNumber, _ services: [(String, String)] = [], start: String = "") {
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
          $0.start.program = start
        }))
  }

  func find(_ number: ConnectionNumber, _ service: String? = nil) -> [String] {
    let question = ask(number, .find(.with { if let service { $0.serviceID = service } }))
    return answers(number, question).flatMap { $0.providers.providers.map(\.appID) }
  }
}
