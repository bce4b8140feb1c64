import Foundation

/// An enrolment, with the connection that it came over.
struct BrokerEnrolment: Sendable {
  let connection: ConnectionNumber
  let origin: BrokerOrigin
  let process: Int32
  let enrol: WireEnrol
  let publicKey: Data

  var appID: String { enrol.appID }
}

/// The enrolments that wait until an administrator approves them. Their number is bounded, also for
/// each origin.
struct PendingEnrolments: Sendable {
  private let limits: BrokerLimits
  private var all: [ConnectionNumber: BrokerEnrolment] = [:]

  init(limits: BrokerLimits) { self.limits = limits }

  /// The enrolments of one app id, or of all, in the order in which they came.
  func enrolments(of appID: String? = nil) -> [BrokerEnrolment] {
    all.values.filter { appID == nil || $0.appID == appID }.sorted { $0.connection < $1.connection }
  }

  /// Returns whether a new app is taken at once; if not, its enrolment waits from now on. Throws
  /// `notAllowed` or `limitExceeded` if it may not even wait.
  mutating func admit(_ new: BrokerEnrolment, _ records: BrokerRecords) throws(ProtocolViolation) -> Bool {
    if records.isApproved(new.appID, new.publicKey) { return true }
    switch new.origin == .plain ? limits.plainApps : limits.sandboxedApps {
    case .installed:
      throw ProtocolViolation(
        fault: .notAllowed, detail: "only apps whose keys were approved before may enrol")
    case .open(let count):
      let unapproved = records.unapprovedCounts(new.origin)
      if unapproved.ofOrigin < count, unapproved.all < limits.unapprovedCountMax { return true }
    case .ask: break
    }
    guard all.count < limits.pendingCountMax,
      all.values.count(where: { $0.origin == new.origin }) < limits.pendingOfOriginMax
    else { throw ProtocolViolation(fault: .limitExceeded, detail: "apps that wait for approval") }
    all[new.connection] = new
    return false
  }

  mutating func remove(_ connection: ConnectionNumber) { all[connection] = nil }
}
