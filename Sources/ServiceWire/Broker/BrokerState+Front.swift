extension BrokerState {
  /// Passes the front on from the app `dial.dialler`. A target that does not run is started first.
  mutating func bringToFront(_ target: String, _ dial: WaitingDials.Dial, now: UInt64) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(target)
    let (question, asker) = (dial.question, dial.dialler)
    guard presence.front == asker else { throw .answer(.notInFront) }
    guard target != asker else { return answers.done(question) }
    if let code = refusal(of: asker, target) { throw .answer(code) }
    guard presence.running[target] == nil else {
      return change(FrontChanges.Wish(question: question, asker: asker, appID: target), now: now)
    }
    guard mayBeStarted(target) else { throw .answer(.applicationNotFound) }
    dials.add(dial, to: target, isRunning: false, now: now, &answers)
    startNext(now: now)
  }

  /// The user's choice.
  mutating func chooseFront(
    _ target: String?, _ question: BrokerQuestion, now: UInt64
  ) throws(BrokerRefusal) {
    if let target { try BrokerRefusal.checkAppID(target) }
    guard presence.mayBeInFront(target) else { throw .answer(.applicationNotFound) }
    dials.refuseFrontDials(&answers)
    change(FrontChanges.Wish(question: question, asker: nil, appID: target), now: now)
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
