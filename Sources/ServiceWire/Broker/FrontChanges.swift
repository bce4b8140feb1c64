import ServiceValues

/// Changes of the app in front: the one that the compositor is asked for, and the wishes that wait.
struct FrontChanges: Sendable {
  struct Wish: Sendable {
    let question: BrokerQuestion
    /// The app that asks; nil for the user.
    let asker: String?
    /// The app to bring to front; nil for none.
    let appID: String?

    /// The user's choice, at the launcher or elsewhere: it goes before the wishes of apps.
    var isChoice: Bool { asker == nil || asker == ApplicationID.launcher.text }
  }

  private struct Asked {
    let change: FrontChange
    let wish: Wish
    /// The app that was in front when the compositor was asked.
    let previous: String?
    let until: UInt64
  }

  private let limits: BrokerLimits
  private var asked: Asked?
  private(set) var wishes: [Wish] = []
  private var nextChange: UInt64 = 1

  init(limits: BrokerLimits) { self.limits = limits }

  var isAsked: Bool { asked != nil }

  /// Queues a wish. A wish of the user refuses all waiting wishes of apps.
  mutating func add(_ wish: Wish, _ answers: inout BrokerAnswers) {
    if wish.isChoice { refuseApps(&answers) }
    wishes.append(wish)
  }

  /// The user has chosen: what apps wish for waits no longer.
  mutating func refuseApps(_ answers: inout BrokerAnswers) {
    for other in wishes where !other.isChoice { answers.fail(other.question, .frontRefused) }
    wishes.removeAll { !$0.isChoice }
  }

  /// Drops the waiting wishes of a connection that has ended.
  mutating func remove(asker: ConnectionNumber) { wishes.removeAll { $0.question.asker == asker } }

  /// Asks the compositor for the next change if none is under way. A wish is checked when its turn
  /// comes, since much may have changed.
  mutating func askCompositor(
    _ presence: AppPresence, _ policy: BrokerPolicy, now: UInt64, _ answers: inout BrokerAnswers
  ) {
    while asked == nil, !wishes.isEmpty {
      let wish = wishes.removeFirst()
      if let code = Self.refusal(of: wish, presence, policy) {
        answers.fail(wish.question, code)
        continue
      }
      let change = FrontChange(number: nextChange)
      nextChange += 1
      asked = Asked(
        change: change, wish: wish, previous: presence.front, until: now + limits.compositorTime)
      answers.append(.askCompositor(appID: wish.appID, change))
    }
  }

  private static func refusal(
    of wish: Wish, _ presence: AppPresence, _ policy: BrokerPolicy
  ) -> ServicesError.Code? {
    guard let appID = wish.appID else { return nil }
    if let asker = wish.asker {
      if !wish.isChoice, presence.front != asker { return .notInFront }
      if policy.denies(asker, appID) { return .notAllowed }
    }
    return presence.mayBeInFront(appID) ? nil : .applicationNotFound
  }

  /// Ends a change; nil if it is not under way. `holds`: the app that asked is still in front, and
  /// the other one still runs.
  mutating func end(_ change: FrontChange, _ presence: AppPresence) -> (wish: Wish, holds: Bool)? {
    guard let ended = asked, ended.change == change else { return nil }
    asked = nil
    let (wish, previous) = (ended.wish, ended.previous)
    return (
      wish, (wish.isChoice || presence.front == previous) && presence.mayBeInFront(wish.appID)
    )
  }

  /// The change that the compositor did not answer in time.
  func overdue(now: UInt64) -> FrontChange? {
    asked.flatMap { now >= $0.until ? $0.change : nil }
  }
}
