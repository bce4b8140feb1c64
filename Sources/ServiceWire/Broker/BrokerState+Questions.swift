import Foundation
import ServiceValues

extension BrokerState {
  mutating func take(
    _ message: WireQuestion, _ number: ConnectionNumber, _ connection: BrokerConnection, now: UInt64,
    date: UInt64
  ) throws(ProtocolViolation) {
    let question = BrokerQuestion(asker: number, number: message.number)
    guard !answers.isOpen(question), !feeds.isWatch(question) else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard answers.openCount(of: number) < limits.questionCountMax else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "questions waiting")
    }
    guard let kind = message.kind else { throw ProtocolViolation(fault: .malformed) }
    answers.open(question)
    do throws(BrokerRefusal) {
      if let appID = connection.appID {
        try answer(question, kind, ofApp: appID, connection, now: now)
      } else if case .administer(let message) = kind, connection.phase == .attending(administers: true) {
        try administer(message, question, connection.owner, now: now, date: date)
      } else {
        try answer(question, kind)
      }
    } catch {
      switch error {
      case .fault(let fault, let detail): throw ProtocolViolation(fault: fault, detail: detail)
      case .answer(let code, let detail): answers.fail(question, code, detail: detail)
      }
    }
  }

  /// Answers what every client may ask.
  private mutating func answer(
    _ question: BrokerQuestion, _ kind: WireQuestion.OneOf_Kind
  ) throws(BrokerRefusal) {
    switch kind {
    case .find(let filter):
      try filter.check()
      feeds.list(.providers(filter), question, &answers)
    case .watch(let filter):
      try filter.check()
      try feeds.watch(filter, question, &answers)
    case .unwatch(let message):
      feeds.unwatch(message.watch, of: question.asker)
      answers.done(question)
    default: throw .fault(.unexpectedMessage)
    }
  }

  /// Answers what an app may ask.
  private mutating func answer(
    _ question: BrokerQuestion, _ kind: WireQuestion.OneOf_Kind, ofApp appID: String,
    _ connection: BrokerConnection, now: UInt64
  ) throws(BrokerRefusal) {
    switch kind {
    case .register(let registration):
      let registration = try registration.checked()
      // An app that comes back with the same one is not charged: nothing is written.
      if records.apps[appID]?.registration != registration {
        try paces.registrations.chargeChange(of: appID, from: connection.origin, now: now)
      }
      if let wrong = registration.fault(limits) { throw .answer(.invalidRegistration, detail: wrong) }
      setRegistration(registration, of: appID)
      answers.done(question)
    case .unregister:
      setRegistration(nil, of: appID)
      answers.done(question)
    case .connect(let message):
      try dial(message.appID, from: appID, question, connection.owner, now: now)
    case .bringToFront(let message):
      try bringToFront(message.appID, from: appID, question, connection.owner, now: now)
    case .state(let message):
      guard message.state.isOfOneThatRuns, !message.givesWay || message.state == .locked else {
        throw .fault(.malformed)
      }
      answers.done(question)
      presence.setGivesWay(message.givesWay, appID)
      guard presence.running[appID]?.state != message.state else { return }
      presence.setState(message.state, of: appID)
      tellNews(of: appID, from: connection.origin, now: now)
      continueDials(to: appID, now: now)
    case .traffic(let traffic):
      answers.done(question)
      guard presence.setTraffic(try traffic.checked(), of: appID),
        paces.traffic.mayTell(of: appID, from: connection.origin, now: now)
      else { return }
      feeds.noteTraffic(of: appID, &answers)
    case .leave:
      try paces.registrations.chargeChange(of: appID, from: connection.origin, now: now)
      leave(appID, question)
    default: try answer(question, kind)
    }
  }

  /// The launcher runs, and may see the app.
  func isTrafficWanted(of appID: String) -> Bool {
    presence.hasLauncher && records.refusal(of: ApplicationID.launcher.text, appID) == nil
  }

  /// The launcher has come or gone, or may see others.
  mutating func tellTrafficIsWanted() {
    if !presence.hasLauncher { presence.forgetTraffic() }
    for (appID, number) in presence.connections where appID != ApplicationID.launcher.text {
      let isWanted = isTrafficWanted(of: appID)
      answers.send(to: number) { $0.trafficWanted.isWanted = isWanted }
    }
  }

  private mutating func setRegistration(_ registration: WireRegister?, of appID: String) {
    guard records.apps[appID]?.registration != registration else {
      return answers.append(.require(.app(appID)))
    }
    records.apps[appID]?.registration = registration
    answers.append(.save(.app(appID)))
    feeds.noteChange(of: appID, &answers)
  }
}
