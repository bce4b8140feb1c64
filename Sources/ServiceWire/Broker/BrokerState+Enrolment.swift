import Foundation
import ServiceValues

/// Who an app is, and who may become one (BROKER-PROTOCOL.md, "Enrolment").
extension BrokerState {
  mutating func take(_ new: BrokerEnrolment, now: UInt64, date: UInt64) throws(ProtocolViolation) {
    let (appID, enrol) = (new.appID, new.enrol)
    guard enrol.version >= 1 else { throw ProtocolViolation(fault: .versionNotSupported) }
    guard (try? ApplicationID(appID)) != nil,
      enrol.activationUser.utf8.count <= limits.nameByteCountMax,
      !enrol.activationUser.isEmpty, enrol.state.isOfOneThatRuns
    else { throw ProtocolViolation(fault: .malformed) }
    // Its key is in a file that cannot be read: any key would be as good as the right one.
    guard !records.isDamaged(appID) else { throw ProtocolViolation(fault: .keyNotPinned) }
    if let known = records.apps[appID] {
      guard known.publicKey == new.publicKey else { throw ProtocolViolation(fault: .keyNotPinned) }
      // The user is pinned with the key: else an app would be whose it likes, from one connection to the next.
      guard known.activationUser.utf8.elementsEqual(enrol.activationUser.utf8) else {
        throw ProtocolViolation(fault: .enterpriseUserNotMatch)
      }
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
      origin: new.origin)
    answers.append(.save(.app(new.appID)))
    feeds.noteChange(in: new.origin, &answers)
    present(new, now: now)
  }

  /// Begins the app's presence: it runs from now on.
  private mutating func present(_ new: BrokerEnrolment, now: UInt64) {
    let (appID, number, enrol) = (new.appID, new.connection, new.enrol)
    var answer = WireEnrolled.with {
      $0.version = min(enrol.version, Self.versionMax)
      $0.policy = records.policy.concerning(appID)
      $0.forgottenCount = records.forgotten.count
      guard enrol.hasForgottenCount else { return }
      if let forgotten = records.forgotten.since(enrol.forgottenCount) {
        $0.forgotten = forgotten
      } else {
        $0.forgotOthers = true
      }
    }
    var replacements = presence.replacements(of: appID, now: now)
    answer.isDuplicated = replacements.count >= AppPresence.replacementCountMax
    if answer.isDuplicated { replacements = [] }
    if let earlier = presence.running[appID] {
      close(earlier.connection, answer.isDuplicated ? .duplicated : .replaced)
    }
    pending.remove(number)
    connections.setPhase(.enrolled(appID: appID), of: number)
    presence.begin(appID, number, process: new.process, enrol.state, replacements: replacements)
    feeds.begin(number, asker: BrokerAsker(appID: appID, origin: new.origin, administers: false))
    answers.send(to: number) { $0.enrolled = answer }
    feeds.noteChange(of: appID, &answers)
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
