import Foundation
import ServiceValues
import SodiumPrimitives

/// Who an app is, and who may become one (BROKER-PROTOCOL.md, "Enrolment").
extension BrokerState {
  mutating func take(_ new: BrokerEnrolment, now: UInt64, date: UInt64) throws(ProtocolViolation) {
    let (appID, enrol) = (new.appID, new.enrol)
    guard enrol.version >= 1 else { throw ProtocolViolation(fault: .versionNotSupported) }
    guard (try? ApplicationID(appID)) != nil,
      enrol.activationUser.utf8.count <= limits.nameByteCountMax,
      !enrol.activationUser.isEmpty, enrol.state.isOfOneThatRuns,
      enrol.presenceKey.isEmpty || enrol.presenceKey.count == KeyPair.byteCount
    else { throw ProtocolViolation(fault: .malformed) }
    try records.requireApproved(launcher: appID, new.publicKey)
    // Its key is in a file that cannot be read: any key would be as good as the right one.
    guard !records.isDamaged(appID) else { throw ProtocolViolation(fault: .keyNotPinned) }
    if enrol.standsIn { return try standIn(new, now: now) }
    if let known = records.apps[appID] {
      guard known.publicKey == new.publicKey else { throw ProtocolViolation(fault: .keyNotPinned) }
      try checkUser(of: known, enrol)
      try keepPresenceKey(new, now: now)
      return present(new, now: now)
    }
    guard !records.isLikeAnother(appID, new.publicKey) else { throw ProtocolViolation(fault: .keyNotPinned) }
    if try pending.admit(new, records) {
      try pin(new, now: now, date: date)
    } else {
      connections.setPhase(.pending, of: new.connection)
      answers.send(to: new.connection) { $0.pending = .init() }
    }
  }

  /// Records the new app and its key. Throws `limitExceeded`: no app makes room for another.
  private mutating func pin(_ new: BrokerEnrolment, now: UInt64, date: UInt64) throws(ProtocolViolation) {
    guard records.apps.count < limits.appCountMax else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "apps")
    }
    records.apps[new.appID] = BrokerRecords.App(
      publicKey: new.publicKey, activationUser: new.enrol.activationUser, enrolled: date,
      origin: new.origin, presenceKey: new.enrol.presenceKey)
    answers.append(.save(.app(new.appID)))
    feeds.noteChange(in: new.origin, &answers)
    present(new, now: now)
  }

  /// The user is pinned with the key: else an app would be whose it likes, from one connection to the next.
  private func checkUser(of known: BrokerRecords.App, _ enrol: WireEnrol) throws(ProtocolViolation) {
    guard known.activationUser.utf8.elementsEqual(enrol.activationUser.utf8) else {
      throw ProtocolViolation(fault: .enterpriseUserNotMatch)
    }
  }

  /// Each change is a file that is written, as a registration is.
  private mutating func keepPresenceKey(_ new: BrokerEnrolment, now: UInt64) throws(ProtocolViolation) {
    let key = new.enrol.presenceKey
    guard !key.isEmpty, key != records.apps[new.appID]?.presenceKey else { return }
    guard paces.registrations.charge(new.appID, from: new.origin, now: now) else {
      throw ProtocolViolation(fault: .limitExceeded, detail: "registrations a second")
    }
    records.apps[new.appID]?.presenceKey = key
    answers.append(.save(.app(new.appID)))
  }

  /// A process of the app that has not opened its container has shown the presence key: it is there for those who want
  /// something of the app, and never in the place of the app itself.
  private mutating func standIn(_ new: BrokerEnrolment, now: UInt64) throws(ProtocolViolation) {
    guard new.enrol.state == .locked, new.enrol.presenceKey.isEmpty else {
      throw ProtocolViolation(fault: .malformed)
    }
    // Whatever else the key may be: nothing is pinned or approved for who stands in.
    guard let known = records.apps[new.appID], known.presenceKey == new.publicKey else {
      throw ProtocolViolation(fault: .keyNotPinned)
    }
    try checkUser(of: known, new.enrol)
    if let running = presence.running[new.appID], !running.standsIn, !running.givesWay {
      throw ProtocolViolation(fault: .replaced)
    }
    present(new, now: now)
  }

  /// Begins the app's presence: it runs from now on.
  private mutating func present(_ new: BrokerEnrolment, now: UInt64) {
    let (appID, number, enrol, standsIn) = (new.appID, new.connection, new.enrol, new.enrol.standsIn)
    var answer = WireEnrolled.with {
      $0.version = min(enrol.version, Self.versionMax)
      if standsIn { return }
      $0.policy = records.policy.concerning(appID)
      $0.trafficIsWanted = isTrafficWanted(of: appID)
      $0.forgottenCount = records.forgotten.count
      guard enrol.hasForgottenCount else { return }
      if let forgotten = records.forgotten.since(enrol.forgottenCount) {
        $0.forgotten = forgotten
      } else {
        $0.forgotOthers = true
      }
    }
    let earlier = presence.running[appID]
    var replacements = standsIn ? [] : presence.replacements(of: appID, now: now)
    answer.isDuplicated = replacements.count >= AppPresence.replacementCountMax
    if answer.isDuplicated { replacements = [] }
    let givesWay = earlier?.givesWay == true
    let fault: ProtocolFault = standsIn && !givesWay || answer.isDuplicated ? .duplicated : .replaced
    // What waits for the app, and the front, pass from a process that stood in for it to the app, and from an app that is locked
    // now to what stands in for it.
    let passesOn = givesWay || (earlier?.standsIn == true && !standsIn)
    if let earlier, !passesOn { close(earlier.connection, fault) }
    pending.remove(number)
    connections.setPhase(standsIn ? .standingIn(appID: appID) : .enrolled(appID: appID), of: number)
    presence.begin(
      appID, number, process: new.process, enrol.state, standsIn: standsIn, replacements: replacements)
    if let earlier, passesOn { close(earlier.connection, fault) }
    feeds.begin(number, asker: BrokerAsker(appID: appID, origin: new.origin, administers: false))
    answers.append(.require(.app(appID)))
    answers.send(to: number) { $0.enrolled = answer }
    if presence.front == appID { answers.send(to: number) { $0.frontChanged.isInFront = true } }
    if appID == ApplicationID.launcher.text { tellTrafficIsWanted() }
    tellNews(of: appID, from: new.origin, now: now)
    startIsOver(of: appID, now: now)
    tellWhoWaits(for: appID)
    continueDials(to: appID, now: now)
  }

  /// An administrator has approved the app's key: a waiting enrolment with this key goes on, and
  /// one with another key is refused.
  mutating func continueEnrolments(of appID: String, _ fingerprint: Data, now: UInt64, date: UInt64) {
    for waiting in pending.enrolments(of: appID) {
      do throws(ProtocolViolation) {
        guard KeyFingerprint.of(waiting.publicKey) == fingerprint else {
          throw ProtocolViolation(fault: .keyNotPinned)
        }
        // It is approved now. Another app may have come meanwhile, or the same one over another connection.
        try take(waiting, now: now, date: date)
      } catch {
        close(waiting.connection, error.fault, detail: error.detail)
      }
    }
  }
}
