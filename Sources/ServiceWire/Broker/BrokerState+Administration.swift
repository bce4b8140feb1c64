import Foundation
import ServiceValues

extension BrokerState {
  // MARK: Front

  mutating func bringToFront(
    _ target: String, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String,
    _ outputs: inout [BrokerOutput]
  ) {
    guard front == appID else { return fail(ask, .notInFront, on: number, &outputs) }
    guard !isDenied(appID, target) else { return fail(ask, .notAllowed, on: number, &outputs) }
    guard running[target] != nil else { return fail(ask, .applicationNotFound, on: number, &outputs) }
    askCompositor(target, ask, number, &outputs)
  }

  private mutating func askCompositor(
    _ target: String?, _ ask: UInt64, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) {
    let change = FrontChange(number: nextFrontChange)
    nextFrontChange += 1
    frontChanges[change] = PendingFront(asker: number, question: ask, appID: target, previous: front)
    outputs.append(.askCompositor(appID: target, change))
  }

  /// The compositor has brought the app to front, or not.
  package mutating func compositorAnswered(_ change: FrontChange, isDone: Bool, now: UInt64) -> [BrokerOutput]
  {
    var outputs: [BrokerOutput] = []
    guard let pending = frontChanges.removeValue(forKey: change) else { return [] }
    // Somebody else came to front meanwhile, or the app has gone: what was asked holds no more.
    guard isDone, front == pending.previous, pending.appID.map({ running[$0] != nil }) ?? true else {
      fail(pending.question, .frontRefused, on: pending.asker, &outputs)
      return outputs
    }
    let previous = front
    front = pending.appID
    if previous != front {
      if let previous { tellFront(previous, false, &outputs) }
      if let now = front { tellFront(now, true, &outputs) }
    }
    done(pending.question, on: pending.asker, &outputs)
    return outputs
  }

  private mutating func tellFront(_ appID: String, _ isInFront: Bool, _ outputs: inout [BrokerOutput]) {
    if let number = running[appID] {
      outputs.append(.send(.with { $0.frontChanged.isInFront = isInFront }, to: number))
    }
    tellWatchers(about: appID, &outputs)
  }

  // MARK: Policy

  /// What concerns an app.
  func policy(of appID: String) -> WirePolicy {
    let denied = records.apps.keys.filter { $0 != appID && (isDenied(appID, $0) || isDenied($0, appID)) }
      .sorted()
    let rules = records.rules.filter { $0.effect == .disable && $0.concerns(provider: appID) }
    return .with {
      $0.rules = rules
      $0.denied = denied
    }
  }

  // MARK: Administration

  mutating func administer(
    _ message: WireAdminister, _ ask: UInt64, _ number: ConnectionNumber, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard let kind = message.kind else { throw Fault(fault: .malformed) }
    switch kind {
    case .listApps:
      connections[number]?.questions.remove(ask)
      let pages = pages(of: records.apps.keys.sorted().map(app))
      for (i, page) in pages.enumerated() {
        outputs.append(
          answer(ask, to: number) {
            $0.apps = .with {
              $0.apps = page
              $0.more = i < pages.count - 1
              $0.authorityFingerprint = authority.fingerprint
            }
          })
      }
    case .forget(let appID):
      guard records.apps.removeValue(forKey: appID) != nil else {
        return fail(ask, .applicationNotFound, on: number, &outputs)
      }
      outputs.append(.save)
      if let connection = running[appID] { close(connection, .forgotten, now: now, &outputs) }
      refuseWaiting(for: appID, with: .applicationNotFound, &outputs) { _ in true }
      tellWatchers(about: appID, &outputs)
      done(ask, on: number, &outputs)
    case .listRules:
      let rules = records.rules
      done(ask, on: number, &outputs) { $0.rules.rules = rules }
    case .addRule(let rule):
      if let wrong = rule.fault { return fail(ask, .invalidParams, detail: wrong, on: number, &outputs) }
      guard !records.rules.contains(rule) else { return done(ask, on: number, &outputs) }
      guard records.rules.count < limits.ruleCountMax else {
        return fail(ask, .limitExceeded, detail: "policy rules", on: number, &outputs)
      }
      records.rules.append(rule)
      policyChanged(&outputs)
      done(ask, on: number, &outputs)
    case .removeRule(let rule):
      guard let index = records.rules.firstIndex(of: rule) else {
        return fail(ask, .general, detail: "no such rule", on: number, &outputs)
      }
      records.rules.remove(at: index)
      policyChanged(&outputs)
      done(ask, on: number, &outputs)
    case .front(let appID):
      guard appID.isEmpty || running[appID] != nil else {
        return fail(ask, .applicationNotFound, on: number, &outputs)
      }
      askCompositor(appID.isEmpty ? nil : appID, ask, number, &outputs)
    }
  }

  private mutating func policyChanged(_ outputs: inout [BrokerOutput]) {
    outputs.append(.save)
    for (appID, number) in running.sorted(by: { $0.key < $1.key }) {
      let policy = policy(of: appID)
      outputs.append(.send(.with { $0.policy = policy }, to: number))
    }
    for appID in records.apps.keys.sorted() { tellWatchers(about: appID, &outputs) }
  }

  private func app(_ appID: String) -> WireApp {
    guard let record = records.apps[appID] else { return WireApp() }
    let filter = WireFind.with { $0.includesOwn = true }
    return .with {
      $0.provider =
        provider(appID, for: filter, asker: nil)
        ?? .with {
          $0.appID = appID
          $0.state = state(of: appID)
          $0.isInFront = front == appID
        }
      $0.keyFingerprint = authority.fingerprint(of: record.publicKey)
      $0.activationUser = record.activationUser
      $0.enrolled = Int64(record.enrolled)
      $0.isRegistered = record.registration != nil
      $0.process = running[appID].flatMap { connections[$0]?.process } ?? 0
    }
  }
}
