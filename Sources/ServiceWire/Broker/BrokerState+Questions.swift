import Foundation
import ServiceValues

extension BrokerState {
  mutating func take(
    _ question: WireQuestion, _ number: ConnectionNumber, _ now: UInt64, _ date: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard let connection = connections[number] else { return }
    guard !connection.questions.contains(question.number), connection.watches[question.number] == nil else {
      throw Fault(fault: .unexpectedMessage)
    }
    guard connection.questions.count < limits.questionCountMax else {
      throw Fault(fault: .limitExceeded, detail: "questions waiting")
    }
    guard let kind = question.kind else { throw Fault(fault: .malformed) }
    connections[number]?.questions.insert(question.number)
    let ask = question.number
    switch kind {
    case .find(let filter):
      try check(filter)
      list(.providers(filter), ask, number, &outputs)
    case .watch(let filter):
      try check(filter)
      try watch(filter, ask, number, connection, &outputs)
    case .unwatch(let message):
      connections[number]?.watches[message.watch] = nil
      if connections[number]?.watches.isEmpty == true { watchers.remove(number) }
      done(ask, on: number, &outputs)
    case .administer(let message):
      guard connection.administers else { throw Fault(fault: .unexpectedMessage) }
      try administer(message, ask, number, now, date, &outputs)
    case .register, .unregister, .connect, .bringToFront, .state:
      guard let appID = connection.appID else { throw Fault(fault: .unexpectedMessage) }
      try take(kind, ask, number, appID, now, &outputs)
    }
  }

  /// What only apps ask.
  private mutating func take(
    _ kind: WireQuestion.OneOf_Kind, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String,
    _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    switch kind {
    case .register(let registration): try register(registration, ask, number, appID, now, &outputs)
    case .unregister:
      if records.apps[appID]?.registration != nil {
        records.apps[appID]?.registration = nil
        outputs.append(.save(.app(appID)))
        tellWatchers(about: appID, &outputs)
      }
      done(ask, on: number, &outputs)
    case .connect(let message): try dial(message.appID, ask, number, appID, now, &outputs)
    case .bringToFront(let message): try bringToFront(message.appID, ask, number, appID, now, &outputs)
    case .state(let message):
      guard message.state.isOfOneThatRuns else { throw Fault(fault: .malformed) }
      connections[number]?.appState = message.state
      done(ask, on: number, &outputs)
      tellWatchers(about: appID, &outputs)
      continueDials(to: appID, now: now, &outputs)
    default: throw Fault(fault: .unexpectedMessage)
    }
  }

  // MARK: Registration

  private mutating func register(
    _ message: WireRegister, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard mayRegister(appID, number, now) else {
      return fail(ask, .limitExceeded, detail: "registrations a second", on: number, &outputs)
    }
    let registration: WireRegister
    do throws(ProtocolFault) {
      registration = try message.known()
    } catch {
      throw Fault(fault: error)
    }
    if let wrong = registration.fault(limits) {
      return fail(ask, .invalidRegistration, detail: wrong, on: number, &outputs)
    }
    if records.apps[appID]?.registration != registration {
      records.apps[appID]?.registration = registration
      outputs.append(.save(.app(appID)))
      tellWatchers(about: appID, &outputs)
    }
    done(ask, on: number, &outputs)
  }

  /// Each one is read, written down and told to all who watch. The apps of a sandbox are charged as one.
  private mutating func mayRegister(_ appID: String, _ number: ConnectionNumber, _ now: UInt64) -> Bool {
    let registrant: Registrant =
      switch connections[number]?.origin {
      case .sandbox(let label): .sandbox(label)
      case .plain, nil: .app(appID)
      }
    let next = max(registeredUntil[registrant] ?? 0, now) + limits.registrationTime
    guard next <= now + limits.registrationBurstMax * limits.registrationTime else { return false }
    registeredUntil[registrant] = next
    return true
  }

  mutating func tickRegistrations(now: UInt64) {
    registeredUntil = registeredUntil.filter { $0.value > now }
  }
}
