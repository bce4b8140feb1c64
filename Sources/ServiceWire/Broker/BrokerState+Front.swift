extension BrokerState {
  mutating func bringToFront(
    _ target: String, _ question: BrokerQuestion, asker: String, now: UInt64
  ) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(target)
    guard presence.front == asker else { throw .answer(.notInFront) }
    guard target != asker else { return answers.done(question) }
    change(FrontChanges.Wish(question: question, asker: asker, appID: target), now: now)
  }

  /// The user's choice.
  mutating func chooseFront(
    _ target: String?, _ question: BrokerQuestion, now: UInt64
  ) throws(BrokerRefusal) {
    if let target { try BrokerRefusal.checkAppID(target) }
    guard presence.mayBeInFront(target) else { throw .answer(.applicationNotFound) }
    change(FrontChanges.Wish(question: question, asker: nil, appID: target), now: now)
  }

  private mutating func change(_ wish: FrontChanges.Wish, now: UInt64) {
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
