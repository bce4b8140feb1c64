/// The rate limit of registrations: each one is read, saved and sent to all watchers. The apps of a
/// sandbox share one allowance.
struct RegistrationRates: Sendable {
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

  /// Charges for one registration. Returns false, and charges nothing, if there is no allowance
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

  mutating func tick(now: UInt64) { usedUntil = usedUntil.filter { $0.value > now } }
}
