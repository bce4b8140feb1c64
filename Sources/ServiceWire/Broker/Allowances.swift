/// How often an app may do what costs others: register, which is read, saved and sent to all watchers, or be news to them.
/// The apps of a sandbox share one allowance.
struct Allowances: Sendable {
  private enum Registrant: Hashable {
    case sandbox(String)
    case app(String)
  }

  private let limits: BrokerLimits
  /// The time at which a registrant has its whole allowance again, in milliseconds.
  private var usedUntil: [Registrant: UInt64] = [:]

  init(limits: BrokerLimits) { self.limits = limits }

  /// Whether everybody has the whole allowance, as of the last tick.
  var isEmpty: Bool { usedUntil.isEmpty }

  /// Charges for one use. Returns false, and charges nothing, if there is no allowance
  /// left.
  mutating func charge(_ appID: String, from origin: BrokerOrigin, now: UInt64) -> Bool {
    let registrant: Registrant =
      switch origin {
      case .sandbox(let label): .sandbox(label)
      case .plain: .app(appID)
      }
    let next = max(usedUntil[registrant] ?? 0, now) + limits.registrationTime
    guard next <= now + limits.registrationBurstMax * limits.registrationTime else { return false }
    usedUntil[registrant] = next
    return true
  }

  /// Charges for a change that is written. Throws `limitExceeded`.
  mutating func chargeChange(of appID: String, from origin: BrokerOrigin, now: UInt64) throws(BrokerRefusal) {
    guard charge(appID, from: origin, now: now) else {
      throw .answer(.limitExceeded, detail: "registrations a second")
    }
  }

  mutating func tick(now: UInt64) { usedUntil = usedUntil.filter { $0.value > now } }
}
