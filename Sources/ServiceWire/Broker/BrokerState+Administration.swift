import Foundation
import ServiceValues

extension BrokerState {
  mutating func administer(
    _ message: WireAdminister, _ question: BrokerQuestion, _ owner: BrokerOwner, now: UInt64, date: UInt64
  ) throws(BrokerRefusal) {
    guard let kind = message.kind else { throw .fault(.malformed) }
    // Asked for again, a change that could not be written is nothing new.
    for part in kind.changedParts { answers.append(.require(part)) }
    switch kind {
    case .listApps(let list):
      if !list.after.isEmpty { try BrokerRefusal.checkAppID(list.after) }
      return feeds.list(.apps(after: list.after), question, &answers)
    case .front(let appID): return try chooseFront(appID.isEmpty ? nil : appID, question, owner, now: now)
    case .listRules:
      try records.checkPolicy()
      let rules = records.policy.rules
      return answers.done(question) { $0.rules.rules = rules }
    case .addRule(let rule): if try records.add(rule, limits) { policyChanged(by: rule) }
    case .removeRule(let rule):
      try records.remove(rule)
      policyChanged(by: rule)
    case .install(let install):
      try records.install(install, limits, programFault)
      answers.append(.save(.program(install.appID)))
      feeds.noteChange(of: install.appID, &answers)
    case .uninstall(let appID):
      try records.uninstall(appID)
      answers.append(.save(.program(appID)))
      feeds.noteChange(of: appID, &answers)
    case .approve(let approval):
      let (appID, fingerprint) = (approval.appID, approval.keyFingerprint)
      try records.approve(appID, fingerprint, limits)
      answers.append(.save(.program(appID)))
      answers.done(question)
      return continueEnrolments(of: appID, fingerprint, now: now, date: date)
    case .forget(let appID): try forget(appID)
    }
    answers.done(question)
  }

  private mutating func forget(_ appID: String) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(appID)
    let waiting = pending.enrolments(of: appID)
    let (app, changed) = records.forget(appID)
    guard !changed.isEmpty || !waiting.isEmpty else { throw .answer(.applicationNotFound) }
    records.noteForgotten(appID)
    for part in changed + [.forgotten] { answers.append(.save(part)) }
    for enrolment in waiting { close(enrolment.connection, .forgotten) }
    tellForgotten(appID, app)
  }

  /// Drops what an app that proved its key had here: pin, registration and presence key. Its program stays, as does the approval
  /// of its key: those are the user's decisions.
  mutating func leave(_ appID: String, _ question: BrokerQuestion) {
    let app = records.apps.removeValue(forKey: appID)
    records.noteForgotten(appID)
    for part in [.app(appID), .forgotten] as [BrokerRecords.Part] { answers.append(.save(part)) }
    answers.done(question)
    tellForgotten(appID, app)
  }

  private mutating func tellForgotten(_ appID: String, _ app: BrokerRecords.App?) {
    if let running = presence.running[appID] { close(running.connection, .forgotten) }
    presence.forgetWaiting(appID)
    let count = records.forgotten.count
    for (_, number) in presence.connections {
      answers.send(to: number) {
        $0.forgotten.appID = appID
        $0.forgotten.count = count
      }
    }
    dials.refuse(appID, .applicationNotFound, &answers) { _ in true }
    feeds.noteChange(of: appID, &answers)
    if let app { feeds.noteChange(in: app.origin, &answers) }
  }

  /// Sends the policy to each app that the rule concerns, and news to each watch of what the rule
  /// hides or shows. The cost grows with the number of apps and watches.
  private mutating func policyChanged(by rule: WireRule) {
    answers.append(.save(.policy))
    for (appID, number) in presence.connections where rule.concerns(appID) {
      feeds.noteChangeOfPolicy(for: number, &answers)
    }
    guard rule.isAboutAccess else { return }
    if presence.hasLauncher, rule.concerns(ApplicationID.launcher.text) { tellTrafficIsWanted() }
    feeds.noteChange(
      of: rule.hasProvider ? rule.provider : nil, for: rule.hasConsumer ? rule.consumer : nil, &answers)
  }
}

extension WireAdminister.OneOf_Kind {
  fileprivate var changedParts: [BrokerRecords.Part] {
    switch self {
    case .listApps, .listRules, .front: []
    case .addRule, .removeRule: [.policy]
    case .install(let install): [.program(install.appID)]
    case .uninstall(let appID): [.program(appID)]
    case .approve(let approval): [.program(approval.appID)]
    case .forget(let appID): [.app(appID), .program(appID), .forgotten]
    }
  }
}
