import Foundation
import ServiceValues

extension BrokerState {
  mutating func take(
    _ question: WireQuestion, _ number: ConnectionNumber, _ now: UInt64, _ outputs: inout [BrokerOutput]
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
      let found = providers(for: filter, asker: connection.appID)
      connections[number]?.questions.remove(ask)
      answerProviders(found, ask, number, &outputs)
    case .watch(let filter): try watch(filter, ask, number, connection, &outputs)
    case .unwatch(let message):
      connections[number]?.watches[message.watch] = nil
      done(ask, on: number, &outputs)
    case .administer(let message):
      guard connection.appID == nil else { throw Fault(fault: .unexpectedMessage) }
      try administer(message, ask, number, now, &outputs)
    case .register, .unregister, .connect, .bringToFront, .state, .renewalNonce, .renew:
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
    case .register(let registration):
      if let wrong = fault(in: registration) {
        return fail(ask, .invalidRegistration, detail: wrong, on: number, &outputs)
      }
      if records.apps[appID]?.registration != registration {
        records.apps[appID]?.registration = registration
        outputs.append(.save)
        tellWatchers(about: appID, &outputs)
      }
      done(ask, on: number, &outputs)
      continueDials(to: appID, now: now, &outputs)
    case .unregister:
      if records.apps[appID]?.registration != nil {
        records.apps[appID]?.registration = nil
        outputs.append(.save)
        tellWatchers(about: appID, &outputs)
      }
      done(ask, on: number, &outputs)
    case .connect(let message): try dial(message.appID, ask, number, appID, now, &outputs)
    case .bringToFront(let message): bringToFront(message.appID, ask, number, appID, &outputs)
    case .state(let message):
      guard message.state != .notRunning, message.state.isKnown else { throw Fault(fault: .malformed) }
      connections[number]?.appState = message.state
      done(ask, on: number, &outputs)
      tellWatchers(about: appID, &outputs)
      continueDials(to: appID, now: now, &outputs)
    case .renewalNonce:
      let nonce = authority.nonce()
      connections[number]?.renewalNonce = nonce
      done(ask, on: number, &outputs) { $0.renewalNonce.nonce = nonce }
    case .renew(let message):
      // A nonce is good once.
      guard let nonce = connections[number]?.renewalNonce, let app = records.apps[appID] else {
        throw Fault(fault: .unexpectedMessage)
      }
      connections[number]?.renewalNonce = nil
      let text = SignedText.renewal(
        brokerNonce: nonce, authority: authority.certificate, appID: appID, activationUser: app.activationUser
      )
      guard message.proof.count <= 256, authority.isSigned(text, by: app.publicKey, message.proof) else {
        throw Fault(fault: .keyNotPinned)
      }
      let leaf = try issue(appID, app.activationUser, app.publicKey, now)
      done(ask, on: number, &outputs) { $0.renewed = leaf }
    default: throw Fault(fault: .unexpectedMessage)
    }
  }

  // MARK: Registration

  /// The path of what is wrong, and why.
  private func fault(in registration: WireRegister) -> String? {
    func text(_ path: String, _ text: String) -> String? {
      text.utf8.count > limits.nameByteCountMax || text.contains { $0.isNewline || $0 == "\0" }
        ? "\(path): longer than \(limits.nameByteCountMax) bytes, or with a line break" : nil
    }
    if let wrong = text("name", registration.name) ?? text("entitlement id", registration.entitlementID)
      ?? text("entitlement version", registration.entitlementVersion)
    {
      return wrong
    }
    if registration.icon.count > limits.iconByteCountMax {
      return "icon: more than \(limits.iconByteCountMax) bytes"
    }
    if !registration.icon.isEmpty, !registration.icon.starts(with: [0x89, 0x50, 0x4e, 0x47]) {
      return "icon: no PNG"
    }
    if registration.services.count > limits.serviceCountMax {
      return "services: more than \(limits.serviceCountMax)"
    }
    let start = registration.start
    if !start.program.isEmpty,
      !start.program.hasPrefix("/") || start.program.utf8.count > limits.argumentByteCountMax
    {
      return "start.program: no absolute path"
    }
    if start.arguments.count > limits.argumentCountMax
      || start.arguments.contains(where: {
        $0.utf8.count > limits.argumentByteCountMax || $0.utf8.contains(0)
      })
    {
      return "start.arguments: too many, or too long"
    }
    var seen: Set<[String]> = []
    for (i, service) in registration.services.enumerated() {
      if let wrong = fault(in: service, at: "services[\(i)]") { return wrong }
      if !seen.insert([service.id, service.version]).inserted { return "services[\(i)]: named twice" }
    }
    return nil
  }

  private func fault(in service: WireService, at path: String) -> String? {
    do {
      _ = try ServiceIdentifier(service.id)
    } catch {
      return "\(path).id: \(error.detail ?? "no service id")"
    }
    do {
      _ = try ServiceVersion(service.version)
    } catch {
      return "\(path).version: \(error.detail ?? "no version")"
    }
    guard service.type.isKnown else { return "\(path).type: not known" }
    if service.definition.isEmpty { return nil }
    if service.definition.count > limits.definitionByteCountMax {
      return "\(path).definition: more than \(limits.definitionByteCountMax) bytes"
    }
    do {
      let definition = try ServiceDefinition(json: Array(service.definition))
      guard definition.serviceID.text == service.id, definition.version.text == service.version else {
        return "\(path).definition: of another service or version"
      }
    } catch {
      return "\(path).definition\(error.path.map { "." + $0 } ?? ""): \(error.detail ?? "no definition")"
    }
    return nil
  }

  // MARK: Introduction

  private mutating func dial(
    _ target: String, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard !isDenied(appID, target) else { return fail(ask, .notAllowed, on: number, &outputs) }
    guard let app = records.apps[target], app.registration != nil || running[target] != nil else {
      return fail(ask, .applicationNotFound, on: number, &outputs)
    }
    guard let other = running[target], let connection = connections[other] else {
      guard let start = app.registration?.start, !start.program.isEmpty else {
        return fail(ask, .applicationNotFound, on: number, &outputs)
      }
      // One start for all who wait for it.
      if !waiting.contains(where: { $0.appID == target && !$0.isRunning }) {
        outputs.append(.start(appID: target, program: start.program, arguments: start.arguments))
      }
      waiting.append(
        WaitingDial(
          dialler: number, question: ask, appID: target, isRunning: false, until: now + limits.startTime))
      return
    }
    switch connection.appState {
    case .suspended: fail(ask, .processSuspended, on: number, &outputs)
    case .locked:
      waiting.append(
        WaitingDial(
          dialler: number, question: ask, appID: target, isRunning: true, until: now + limits.unlockTime))
    case .running, .notRunning, .UNRECOGNIZED: introduce(number, ask, appID, to: other, target, &outputs)
    }
  }

  private mutating func introduce(
    _ dialler: ConnectionNumber, _ ask: UInt64, _ diallerID: String, to acceptor: ConnectionNumber,
    _ acceptorID: String, _ outputs: inout [BrokerOutput]
  ) {
    let ticket = authority.nonce()
    func message(_ role: WireRole, _ peer: String) -> WireBrokerMessage {
      .with {
        $0.introduction = .with {
          $0.ticket = ticket
          $0.role = role
          $0.appID = peer
          $0.activationUser = records.apps[peer]?.activationUser ?? ""
          $0.number = role == .dialler ? ask : 0
        }
      }
    }
    outputs.append(
      .introduce(
        dialler: dialler, message(.dialler, acceptorID), acceptor: acceptor, message(.acceptor, diallerID)))
    done(ask, on: dialler, &outputs) { $0.introduced.ticket = ticket }
  }

  /// The app has come, or changed its state: those who wait for it go on.
  mutating func continueDials(to appID: String, now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard let number = running[appID], let connection = connections[number] else { return }
    let mine = waiting.filter { $0.appID == appID }
    guard !mine.isEmpty else { return }
    switch connection.appState {
    case .locked:
      for i in waiting.indices where waiting[i].appID == appID && !waiting[i].isRunning {
        waiting[i].isRunning = true
        waiting[i].until = now + limits.unlockTime
      }
    case .suspended: refuseWaiting(for: appID, with: .processSuspended, &outputs) { _ in true }
    case .running, .notRunning, .UNRECOGNIZED:
      waiting.removeAll { $0.appID == appID }
      for dial in mine {
        guard let dialler = connections[dial.dialler]?.appID else { continue }
        guard !isDenied(dialler, appID) else {
          fail(dial.question, .notAllowed, on: dial.dialler, &outputs)
          continue
        }
        introduce(dial.dialler, dial.question, dialler, to: number, appID, &outputs)
      }
    }
  }

  mutating func refuseWaiting(
    for appID: String, with code: ServicesError.Code, _ outputs: inout [BrokerOutput],
    where isMeant: (WaitingDial) -> Bool
  ) {
    let mine = waiting.filter { $0.appID == appID && isMeant($0) }
    waiting.removeAll { $0.appID == appID && isMeant($0) }
    for dial in mine { fail(dial.question, code, on: dial.dialler, &outputs) }
  }

  func isDenied(_ consumer: String, _ provider: String) -> Bool {
    records.rules.contains { $0.denies(consumer, provider) }
  }
}

extension WireServiceType {
  var isKnown: Bool { if case .UNRECOGNIZED = self { false } else { true } }
}

extension WireAppState {
  var isKnown: Bool { if case .UNRECOGNIZED = self { false } else { true } }
}
