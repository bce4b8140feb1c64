/// Which apps watchers are told of now, and which later. Watchers are sent all that they want to know of an app, which may be much more than
/// it said: who is news again and again is told of once a second, as it is then.
struct AppNews: Sendable {
  private var allowances: Allowances
  /// Those of which watchers are told when their allowance is there again, in their order.
  private var late: [(appID: String, origin: BrokerOrigin)] = []

  init(limits: BrokerLimits) { allowances = Allowances(limits: limits) }

  var isEmpty: Bool { late.isEmpty }

  /// Whether to tell of the app now; else ``takeLate(now:)`` has it.
  mutating func mayTell(of appID: String, from origin: BrokerOrigin, now: UInt64) -> Bool {
    allowances.tick(now: now)
    if late.contains(where: { $0.appID == appID }) { return false }
    // Behind those with whom it shares the allowance.
    let isBehind = origin != .plain && late.contains { $0.origin == origin }
    if !isBehind, allowances.charge(appID, from: origin, now: now) { return true }
    late.append((appID, origin))
    return false
  }

  /// Those that are told of by now.
  mutating func takeLate(now: UInt64) -> [String] {
    allowances.tick(now: now)
    let waiting = late
    late = []
    return waiting.compactMap { app in
      if allowances.charge(app.appID, from: app.origin, now: now) { return app.appID }
      late.append(app)
      return nil
    }
  }
}

/// What apps may do how often, each apart from the others.
struct BrokerPaces: Sendable {
  /// Register.
  var registrations: Allowances
  /// Come, or be in another state: watchers are told.
  var news: AppNews
  /// Have more or less on their way: the launcher is told.
  var traffic: AppNews

  init(limits: BrokerLimits) {
    registrations = Allowances(limits: limits)
    (news, traffic) = (AppNews(limits: limits), AppNews(limits: limits))
  }

  /// Whether nobody waits, and everybody may register as often as may be, as of the last tick.
  var isEmpty: Bool { registrations.isEmpty && news.isEmpty && traffic.isEmpty }
}
