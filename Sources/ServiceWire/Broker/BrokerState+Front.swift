extension BrokerState {
  /// Passes the front on from the app that asks.
  mutating func bringToFront(
    _ target: String, from asker: String, _ question: BrokerQuestion, _ owner: BrokerOwner, now: UInt64
  ) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(target)
    let wish = FrontChanges.Wish(question: question, asker: asker, appID: target)
    guard wish.isChoice || presence.front == asker else { throw .answer(.notInFront) }
    guard target != asker else { return answers.done(question) }
    if let code = records.refusal(of: asker, target) { throw .answer(code) }
    try carryOut(wish, owner, now: now)
  }

  /// The user's choice.
  mutating func chooseFront(
    _ target: String?, _ question: BrokerQuestion, _ owner: BrokerOwner, now: UInt64
  ) throws(BrokerRefusal) {
    if let target { try BrokerRefusal.checkAppID(target) }
    try carryOut(FrontChanges.Wish(question: question, asker: nil, appID: target), owner, now: now)
  }

  /// A target that does not run is started first.
  private mutating func carryOut(
    _ wish: FrontChanges.Wish, _ owner: BrokerOwner, now: UInt64
  ) throws(BrokerRefusal) {
    let absent = presence.mayBeInFront(wish.appID) ? nil : wish.appID
    if let absent, !records.mayBeStarted(absent) { throw .answer(.applicationNotFound) }
    if wish.isChoice {
      dials.refuseFrontDials(&answers)
      frontChanges.refuseApps(&answers)
    }
    guard let absent else { return change(wish, now: now) }
    let dial = WaitingDials.Dial(wish.question, dialler: wish.asker, owner: owner, purpose: .front)
    dials.add(dial, to: absent, isRunning: false, now: now, &answers)
    startNext(now: now)
  }

  mutating func change(_ wish: FrontChanges.Wish, now: UInt64) {
    frontChanges.add(wish, &answers)
    frontChanges.askCompositor(presence, records.policy, now: now, &answers)
  }

  /// The compositor has brought the app to front, or not.
  package mutating func compositorAnswered(_ change: FrontChange, isDone: Bool, now: UInt64) -> [BrokerOutput]
  {
    endFrontChange(change, isDone: isDone, now: now)
    return answers.takeOutputs()
  }

  mutating func endFrontChange(_ change: FrontChange, isDone: Bool, now: UInt64) {
    guard let (wish, holds) = frontChanges.end(change, presence) else { return }
    if isDone, holds {
      setFront(wish.appID)
      answers.done(wish.question)
    } else {
      answers.fail(wish.question, .frontRefused)
    }
    frontChanges.askCompositor(presence, records.policy, now: now, &answers)
  }

  private mutating func setFront(_ appID: String?) {
    let previous = presence.front
    guard previous != appID else { return }
    presence.setFront(appID)
    for (appID, isInFront) in [(previous, false), (appID, true)] {
      guard let appID, let running = presence.running[appID] else { continue }
      answers.send(to: running.connection) { $0.frontChanged.isInFront = isInFront }
      feeds.noteChange(of: appID, &answers)
    }
  }
}
