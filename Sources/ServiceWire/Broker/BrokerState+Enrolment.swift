import Foundation
import ServiceValues

/// Who an app is, and who may become one (BROKER-PROTOCOL.md, "Enrolment").
extension BrokerState {
  mutating func take(
    _ enrol: WireEnrol, _ number: ConnectionNumber, _ publicKey: Data, _ now: UInt64, _ date: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    let appID = enrol.appID
    guard enrol.version >= 1 else { throw Fault(fault: .versionNotSupported) }
    try checkAppID(appID)
    guard enrol.activationUser.utf8.count <= limits.nameByteCountMax,
      !enrol.activationUser.isEmpty, enrol.state.isOfOneThatRuns
    else { throw Fault(fault: .malformed) }
    // Its key is in a file that cannot be read: any key would be as good as the right one.
    guard !records.damagedApps.contains(fileName(appID)) else { throw Fault(fault: .keyNotPinned) }
    if let known = records.apps[appID] {
      guard known.publicKey == publicKey else { throw Fault(fault: .keyNotPinned) }
      // The user is pinned with the key: else an app would be whose it likes, from one connection to the next.
      guard known.activationUser.utf8.elementsEqual(enrol.activationUser.utf8) else {
        throw Fault(fault: .enterpriseUserNotMatch)
      }
      return present(enrol, number, publicKey, now, &outputs)
    }
    guard !records.isLikeAnother(appID, publicKey) else { throw Fault(fault: .keyNotPinned) }
    if try isAdmitted(appID, publicKey, number) {
      try pin(enrol, number, publicKey, now, date, &outputs)
    } else {
      connections[number]?.phase = .pending(enrol, publicKey: publicKey)
      outputs.append(.send(.with { $0.pending = .init() }, to: number))
    }
  }

  /// Whether a new app is taken at once; else it waits for approval. Throws where it may not even wait.
  private func isAdmitted(
    _ appID: String, _ publicKey: Data, _ number: ConnectionNumber
  ) throws(Fault) -> Bool {
    if records.isApproved(appID, publicKey) { return true }
    let origin = connections[number]?.origin ?? .plain
    switch origin == .plain ? limits.plainApps : limits.sandboxedApps {
    case .installed:
      throw Fault(fault: .notAllowed, detail: "only apps whose keys were approved before may enrol")
    case .open(let count):
      let unapproved = records.unapprovedCounts(origin)
      if unapproved.ofOrigin < count, unapproved.all < limits.unapprovedCountMax { return true }
    case .ask: break
    }
    let pending = connections.values.filter { $0.pending != nil }
    guard pending.count < limits.pendingCountMax,
      pending.count(where: { $0.origin == origin }) < limits.pendingOfOriginMax
    else { throw Fault(fault: .limitExceeded, detail: "apps that wait for approval") }
    return false
  }

  /// Writes down who the app is, from now on. Throws `limitExceeded`: nobody makes room for another.
  private mutating func pin(
    _ enrol: WireEnrol, _ number: ConnectionNumber, _ publicKey: Data, _ now: UInt64, _ date: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard records.apps.count < limits.appCountMax else {
      throw Fault(fault: .limitExceeded, detail: "apps")
    }
    records.apps[enrol.appID] = BrokerRecords.App(
      publicKey: publicKey, activationUser: enrol.activationUser, enrolled: date,
      origin: connections[number]?.origin ?? .plain)
    outputs.append(.save(.app(enrol.appID)))
    if let origin = records.apps[enrol.appID]?.origin { tellClients(of: origin, &outputs) }
    present(enrol, number, publicKey, now, &outputs)
  }

  /// The app is there from now on.
  private mutating func present(
    _ enrol: WireEnrol, _ number: ConnectionNumber, _ publicKey: Data, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) {
    let appID = enrol.appID
    let answer = WireEnrolled.with {
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
    if let earlier = running[appID] { close(earlier, .replaced, now: now, &outputs) }
    connections[number]?.phase = .enrolled(appID: appID)
    connections[number]?.appState = enrol.state
    running[appID] = number
    outputs.append(.send(.with { $0.enrolled = answer }, to: number))
    tellWatchers(about: appID, &outputs)
    startIsOver(of: appID, now: now, &outputs)
    continueDials(to: appID, now: now, &outputs)
  }

  // MARK: Approval

  /// An administrator says that this key is the app's: of one that is known, that waits, or that comes later.
  mutating func approve(
    _ message: WireApprove, _ ask: UInt64, _ number: ConnectionNumber, _ now: UInt64, _ date: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    let (appID, fingerprint) = (message.appID, message.keyFingerprint)
    try checkAppID(appID)
    guard fingerprint.count == KeyFingerprint.byteCount else { throw Fault(fault: .malformed) }
    if let known = records.apps[appID], KeyFingerprint.of(known.publicKey) != fingerprint {
      return fail(
        ask, .certificateNotFound, detail: "the app has enrolled with another key: forget it first",
        on: number, &outputs)
    }
    guard records.programs[appID] != nil || records.programs.count < limits.appCountMax else {
      return fail(ask, .limitExceeded, detail: "apps installed or approved", on: number, &outputs)
    }
    records.programs[appID, default: WireProgram()].keyFingerprint = fingerprint
    outputs.append(.save(.program(appID)))
    done(ask, on: number, &outputs)
    for (waiting, connection) in pendingConnections(of: appID) {
      guard let (enrol, publicKey) = connection.pending else { continue }
      guard KeyFingerprint.of(publicKey) == fingerprint else {
        close(waiting, .keyNotPinned, now: now, &outputs)
        continue
      }
      do throws(Fault) {
        // Another app may have come meanwhile, or the same one over another connection.
        if records.apps[appID] != nil {
          try take(enrol, waiting, publicKey, now, date, &outputs)
        } else {
          guard !records.isLikeAnother(appID, publicKey) else { throw Fault(fault: .keyNotPinned) }
          try pin(enrol, waiting, publicKey, now, date, &outputs)
        }
      } catch {
        close(waiting, error.fault, detail: error.detail, now: now, &outputs)
      }
    }
  }

  /// In the order in which they came; of all ids without one.
  func pendingConnections(of appID: String? = nil) -> [(ConnectionNumber, Connection)] {
    connections.filter { _, connection in
      connection.pending.map { appID == nil || $0.enrol.appID == appID } ?? false
    }.sorted { $0.key < $1.key }
  }
}

extension WireProgram {
  /// Whether it names a program, and not an approved key alone.
  var isStarted: Bool { !path.isEmpty }
}
