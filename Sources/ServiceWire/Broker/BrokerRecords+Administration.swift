import Foundation
import ServiceValues
import SwiftProtobuf

/// The changes by administrators.
extension BrokerRecords {
  // MARK: Programs and approval

  /// Sets an app's program, unless `programFault` says why it is not to be started. A program is the
  /// user's decision, as a rule is: forgetting the app does not uninstall it.
  mutating func install(
    _ message: WireInstall, _ limits: BrokerLimits, _ programFault: (String) -> String?
  ) throws(BrokerRefusal) {
    let install = try message.checked()
    if let wrong = install.fault(limits) { throw .answer(.invalidParams, detail: wrong) }
    if install.program.isStarted, let wrong = programFault(install.program.path) {
      throw .answer(.invalidParams, detail: "program: \(wrong)")
    }
    guard programs[install.appID] != nil || programs.count < limits.appCountMax else {
      throw .answer(.limitExceeded, detail: "apps installed")
    }
    change(install.appID) { program in
      let approved = program.keyFingerprint
      program = install.program
      if program.keyFingerprint.isEmpty { program.keyFingerprint = approved }
    }
  }

  mutating func uninstall(_ appID: String) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(appID)
    guard programs[appID]?.isStarted == true || isProgramDamaged(appID) else {
      throw .answer(.applicationNotFound)
    }
    change(appID) {
      $0.path = ""
      $0.arguments = []
    }
  }

  /// Records that this key is the app's, whether the app is known or enrols later.
  mutating func approve(
    _ appID: String, _ fingerprint: Data, _ limits: BrokerLimits
  ) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(appID)
    guard fingerprint.count == KeyFingerprint.byteCount else { throw .fault(.malformed) }
    if let known = apps[appID], KeyFingerprint.of(known.publicKey) != fingerprint {
      throw .answer(
        .certificateNotFound, detail: "the app has enrolled with another key: forget it first")
    }
    guard !isProgramDamaged(appID) else {
      throw .answer(
        .general,
        detail:
          "the app's program is damaged: install or uninstall it first, or restore the broker's file and start the broker anew"
      )
    }
    guard programs[appID] != nil || programs.count < limits.appCountMax else {
      throw .answer(.limitExceeded, detail: "apps installed or approved")
    }
    change(appID) { $0.keyFingerprint = fingerprint }
  }

  /// Drops an app and the approval of its key, and a damaged program, whose file may hold an approval. Returns the app, and the
  /// parts that changed: none if nothing was there.
  mutating func forget(_ appID: String) -> (app: App?, changed: [Part]) {
    var changed: [Part] = []
    let wasDamaged = damagedApps.remove(Self.fileName(appID)) != nil
    let app = apps.removeValue(forKey: appID)
    if app != nil || wasDamaged { changed.append(.app(appID)) }
    if programs[appID]?.keyFingerprint.isEmpty == false || isProgramDamaged(appID) {
      change(appID) { $0.keyFingerprint = Data() }
      changed.append(.program(appID))
    }
    return (app, changed)
  }

  /// Changes an app's program or approved key. An empty entry is removed. The new entry replaces a damaged file.
  private mutating func change(_ appID: String, _ body: (inout WireProgram) -> Void) {
    var program = programs[appID] ?? WireProgram()
    body(&program)
    programs[appID] = program == WireProgram() ? nil : program
    damagedPrograms.remove(Self.fileName(appID))
  }

  // MARK: Policy

  /// Throws `general` if the rules cannot be read: then everything is denied until the file is
  /// repaired.
  func checkPolicy() throws(BrokerRefusal) {
    guard policy.isDamaged else { return }
    throw .answer(
      .general,
      detail:
        "the policy's file is damaged, and everything is denied: restore it from a backup, or remove it to have no rules, and start the broker anew"
    )
  }

  /// Adds a rule. Returns false if it is there already.
  mutating func add(_ rule: WireRule, _ limits: BrokerLimits) throws(BrokerRefusal) -> Bool {
    try checkPolicy()
    let rule = try rule.checked()
    if let wrong = rule.fault() {
      throw .answer(.invalidParams, detail: wrong)
    }
    guard !policy.rules.contains(rule) else { return false }
    guard policy.rules.count < limits.ruleCountMax else {
      throw .answer(.limitExceeded, detail: "policy rules")
    }
    guard policy.byteCount + rule.encodedByteCount <= limits.ruleByteCountMax else {
      throw .answer(.limitExceeded, detail: "bytes of policy rules")
    }
    policy.add(rule)
    return true
  }

  mutating func remove(_ rule: WireRule) throws(BrokerRefusal) {
    try checkPolicy()
    let rule = try rule.checked()
    guard rule.fault() == nil, let index = policy.rules.firstIndex(of: rule) else {
      throw .answer(.general, detail: "no such rule")
    }
    policy.remove(at: index)
  }
}

extension Message {
  /// ``known()`` of a message in a question.
  func checked() throws(BrokerRefusal) -> Self {
    do throws(ProtocolFault) {
      return try known()
    } catch {
      throw .fault(error)
    }
  }
}
