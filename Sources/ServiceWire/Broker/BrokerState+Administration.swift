import Foundation
import ServiceValues

extension BrokerState {
  mutating func administer(
    _ message: WireAdminister, _ ask: UInt64, _ number: ConnectionNumber, _ now: UInt64, _ date: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard let kind = message.kind else { throw Fault(fault: .malformed) }
    switch kind {
    case .listApps(let list):
      if !list.after.isEmpty { try checkAppID(list.after) }
      self.list(.apps(after: list.after), ask, number, &outputs)
    case .forget(let appID): try forget(appID, ask, number, now, &outputs)
    case .install(let install): try self.install(install, ask, number, &outputs)
    case .approve(let approval): try approve(approval, ask, number, now, date, &outputs)
    case .uninstall(let appID):
      try checkAppID(appID)
      guard records.programs[appID]?.isStarted == true else {
        return fail(ask, .applicationNotFound, on: number, &outputs)
      }
      change(appID, &outputs) {
        $0.path = ""
        $0.arguments = []
      }
      done(ask, on: number, &outputs)
    case .listRules, .addRule, .removeRule:
      guard !records.policy.isDamaged else {
        return fail(ask, .general, detail: Self.policyIsDamaged, on: number, &outputs)
      }
      try changePolicy(kind, ask, number, &outputs)
    case .front(let appID): try chooseFront(appID.isEmpty ? nil : appID, ask, number, now, &outputs)
    }
  }

  /// A page of the administrator's list.
  func apps(after: String) -> WireApps {
    let page = page(after: after, in: knownAppIDs, app)
    let pending = after.isEmpty ? pendingConnections().compactMap { pendingApp($0.1) } : []
    return .with {
      $0.apps = page.elements
      $0.more = page.hasMore
      $0.brokerFingerprint = KeyFingerprint.of(publicKey)
      $0.pending = pending
    }
  }

  /// What an administrator reads: the broker denies everything until the file is right again.
  static let policyIsDamaged =
    "the policy's file is damaged, and everything is denied: restore it from a backup, or remove it to have no rules, and start the broker anew"

  private mutating func changePolicy(
    _ kind: WireAdminister.OneOf_Kind, _ ask: UInt64, _ number: ConnectionNumber,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    switch kind {
    case .listRules:
      let rules = records.policy.rules
      done(ask, on: number, &outputs) { $0.rules.rules = rules }
    case .addRule(let rule): try add(rule, ask, number, &outputs)
    case .removeRule(let rule):
      let rule = try known(rule)
      guard rule.fault(nameByteCountMax: limits.nameByteCountMax) == nil,
        let index = records.policy.rules.firstIndex(of: rule)
      else {
        return fail(ask, .general, detail: "no such rule", on: number, &outputs)
      }
      records.policy.remove(at: index)
      policyChanged(by: rule, &outputs)
      done(ask, on: number, &outputs)
    default: throw Fault(fault: .malformed)
    }
  }

  private mutating func forget(
    _ appID: String, _ ask: UInt64, _ number: ConnectionNumber, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    try checkAppID(appID)
    let wasDamaged = records.damagedApps.remove(fileName(appID)) != nil
    let pending = pendingConnections(of: appID)
    let wasApproved = records.programs[appID]?.keyFingerprint.isEmpty == false
    let known = records.apps.removeValue(forKey: appID)
    let wasKnown = known != nil
    guard wasKnown || wasDamaged || wasApproved || !pending.isEmpty else {
      return fail(ask, .applicationNotFound, on: number, &outputs)
    }
    if wasKnown || wasDamaged { outputs.append(.save(.app(appID))) }
    if wasApproved { change(appID, &outputs) { $0.keyFingerprint = Data() } }
    for (connection, _) in pending { close(connection, .forgotten, now: now, &outputs) }
    if let connection = running[appID] { close(connection, .forgotten, now: now, &outputs) }
    records.noteForgotten(appID)
    outputs.append(.save(.forgotten))
    let count = records.forgotten.count
    for (_, other) in running.sorted(by: { $0.key < $1.key }) {
      outputs.append(
        .send(
          .with {
            $0.forgotten.appID = appID
            $0.forgotten.count = count
          }, to: other))
    }
    refuseWaiting(for: appID, with: .applicationNotFound, &outputs) { _ in true }
    tellWatchers(about: appID, &outputs)
    if let known { tellClients(of: known.origin, &outputs) }
    done(ask, on: number, &outputs)
  }

  /// Changes what administrators said of an app; nothing is kept of one of which nothing is said.
  private mutating func change(
    _ appID: String, _ outputs: inout [BrokerOutput], _ body: (inout WireProgram) -> Void
  ) {
    var program = records.programs[appID] ?? WireProgram()
    body(&program)
    records.programs[appID] = program == WireProgram() ? nil : program
    outputs.append(.save(.program(appID)))
  }

  // MARK: Policy

  private func known(_ rule: WireRule) throws(Fault) -> WireRule {
    do throws(ProtocolFault) {
      return try rule.known()
    } catch {
      throw Fault(fault: error)
    }
  }

  private mutating func add(
    _ rule: WireRule, _ ask: UInt64, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    let rule = try known(rule)
    if let wrong = rule.fault(nameByteCountMax: limits.nameByteCountMax) {
      return fail(ask, .invalidParams, detail: wrong, on: number, &outputs)
    }
    guard !records.policy.rules.contains(rule) else { return done(ask, on: number, &outputs) }
    guard records.policy.rules.count < limits.ruleCountMax else {
      return fail(ask, .limitExceeded, detail: "policy rules", on: number, &outputs)
    }
    guard records.policy.byteCount + rule.encodedByteCount <= limits.ruleByteCountMax else {
      return fail(ask, .limitExceeded, detail: "bytes of policy rules", on: number, &outputs)
    }
    records.policy.add(rule)
    policyChanged(by: rule, &outputs)
    done(ask, on: number, &outputs)
  }

  /// Each app whom the rule concerns hears of it, and who watches what it hides or shows. Costs no more than the number of apps and watches.
  private mutating func policyChanged(by rule: WireRule, _ outputs: inout [BrokerOutput]) {
    outputs.append(.save(.policy))
    for (appID, number) in running.sorted(by: { $0.key < $1.key }) where rule.concerns(appID) {
      connections[number]?.isPolicyDirty = true
      askForMore(number, &outputs)
    }
    guard rule.isAboutAccess else { return }
    tellWatchers(
      about: rule.hasProvider ? rule.provider : nil, of: rule.hasConsumer ? rule.consumer : nil, &outputs)
  }

  // MARK: Apps

  /// A program is the user's word, as a rule is: forgetting an app does not uninstall it.
  private mutating func install(
    _ message: WireInstall, _ ask: UInt64, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    let install: WireInstall
    do throws(ProtocolFault) {
      install = try message.known()
    } catch {
      throw Fault(fault: error)
    }
    if let wrong = install.fault(limits) {
      return fail(ask, .invalidParams, detail: wrong, on: number, &outputs)
    }
    guard records.programs[install.appID] != nil || records.programs.count < limits.appCountMax else {
      return fail(ask, .limitExceeded, detail: "apps installed", on: number, &outputs)
    }
    change(install.appID, &outputs) { program in
      let approved = program.keyFingerprint
      program = install.program
      if program.keyFingerprint.isEmpty { program.keyFingerprint = approved }
    }
    done(ask, on: number, &outputs)
  }

  /// Apps that enrolled or have a program, and ids whose file is damaged as far as its name tells them.
  private var knownAppIDs: Set<String> {
    Set(records.apps.keys).union(records.programs.keys).union(
      records.damagedApps.filter { (try? ApplicationID($0)) != nil })
  }

  private func app(_ appID: String) -> WireApp? {
    let record = records.apps[appID]
    let filter = WireFind.with { $0.includesOwn = true }
    return .with {
      $0.provider =
        provider(appID, for: filter, asker: nil)
        ?? .with {
          $0.appID = appID
          $0.state = state(of: appID)
          $0.isInFront = front == appID
        }
      if let record {
        $0.identity.keyFingerprint = KeyFingerprint.of(record.publicKey)
        $0.identity.activationUser = record.activationUser
        $0.identity.enrolled = Int64(record.enrolled)
        $0.identity.origin = record.origin.label
        $0.isRegistered = record.registration != nil
      }
      if let program = records.programs[appID] { $0.program = program }
      $0.isDamaged = records.damagedApps.contains(fileName(appID))
      $0.process = running[appID].flatMap { connections[$0]?.process } ?? 0
    }
  }

  private func pendingApp(_ connection: Connection) -> WireApp? {
    guard let (enrol, publicKey) = connection.pending else { return nil }
    return .with {
      $0.provider.appID = enrol.appID
      $0.identity.keyFingerprint = KeyFingerprint.of(publicKey)
      $0.identity.activationUser = enrol.activationUser
      $0.identity.origin = connection.origin.label
      $0.process = connection.process
    }
  }
}
