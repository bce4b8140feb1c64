import Foundation

extension BrokerState {
  struct FrontWish: Sendable {
    let asker: ConnectionNumber
    let question: UInt64
    /// Nil: nobody is to be in front.
    let appID: String?
    /// The user's own choice, which an app's never stands in the way of.
    let isUsers: Bool
  }

  /// What the compositor is asked for.
  struct AskedFront: Sendable {
    let change: FrontChange
    let wish: FrontWish
    /// Who was in front when it was asked.
    let previous: String?
    let until: UInt64
  }

  mutating func bringToFront(
    _ target: String, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    try checkAppID(target)
    guard front == appID else { return fail(ask, .notInFront, on: number, &outputs) }
    guard target != appID else { return done(ask, on: number, &outputs) }
    frontWishes.append(FrontWish(asker: number, question: ask, appID: target, isUsers: false))
    askCompositor(now: now, &outputs)
  }

  mutating func chooseFront(
    _ target: String?, _ ask: UInt64, _ number: ConnectionNumber, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    if let target { try checkAppID(target) }
    guard target.map({ running[$0] != nil }) ?? true else {
      return fail(ask, .applicationNotFound, on: number, &outputs)
    }
    let refused = frontWishes.filter { !$0.isUsers }
    frontWishes.removeAll { !$0.isUsers }
    for wish in refused { fail(wish.question, .frontRefused, on: wish.asker, &outputs) }
    frontWishes.append(FrontWish(asker: number, question: ask, appID: target, isUsers: true))
    askCompositor(now: now, &outputs)
  }

  /// Asks for the next change, if none is under way. Each is looked at when its turn comes: much may have changed since.
  private mutating func askCompositor(now: UInt64, _ outputs: inout [BrokerOutput]) {
    while frontChange == nil, !frontWishes.isEmpty {
      let wish = frontWishes.removeFirst()
      if let appID = wish.appID {
        if !wish.isUsers {
          guard let asker = connections[wish.asker]?.appID, front == asker else {
            fail(wish.question, .notInFront, on: wish.asker, &outputs)
            continue
          }
          guard !records.policy.denies(asker, appID) else {
            fail(wish.question, .notAllowed, on: wish.asker, &outputs)
            continue
          }
        }
        guard running[appID] != nil else {
          fail(wish.question, .applicationNotFound, on: wish.asker, &outputs)
          continue
        }
      }
      let change = FrontChange(number: nextFrontChange)
      nextFrontChange += 1
      frontChange = AskedFront(
        change: change, wish: wish, previous: front, until: now + limits.compositorTime)
      outputs.append(.askCompositor(appID: wish.appID, change))
    }
  }

  /// The compositor has brought the app to front, or not.
  package mutating func compositorAnswered(_ change: FrontChange, isDone: Bool, now: UInt64) -> [BrokerOutput]
  {
    var outputs: [BrokerOutput] = []
    guard let asked = frontChange, asked.change == change else { return [] }
    frontChange = nil
    let wish = asked.wish
    // The app that asked is not in front any more, or the other has gone: what was asked holds no more.
    if isDone, wish.isUsers || front == asked.previous, wish.appID.map({ running[$0] != nil }) ?? true {
      setFront(wish.appID, &outputs)
      done(wish.question, on: wish.asker, &outputs)
    } else {
      fail(wish.question, .frontRefused, on: wish.asker, &outputs)
    }
    askCompositor(now: now, &outputs)
    return outputs
  }

  private mutating func setFront(_ appID: String?, _ outputs: inout [BrokerOutput]) {
    let previous = front
    guard previous != appID else { return }
    front = appID
    for (appID, isInFront) in [(previous, false), (appID, true)] {
      guard let appID, let number = running[appID] else { continue }
      outputs.append(.send(.with { $0.frontChanged.isInFront = isInFront }, to: number))
      tellWatchers(about: appID, &outputs)
    }
  }

  mutating func tickFront(now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard let asked = frontChange, now >= asked.until else { return }
    outputs += compositorAnswered(asked.change, isDone: false, now: now)
  }
}
