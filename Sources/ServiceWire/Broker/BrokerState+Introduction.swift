import Foundation
import ServiceValues
import SodiumPrimitives

/// Dials: how an app gets a channel to another.
extension BrokerState {
  mutating func dial(
    _ target: String, from dialler: String, _ question: BrokerQuestion, _ owner: BrokerOwner, now: UInt64
  ) throws(BrokerRefusal) {
    try BrokerRefusal.checkAppID(target)
    // One app has one connection, and cannot be both sides of a channel. The launcher takes nothing.
    guard target != dialler, target != ApplicationID.launcher.text else { throw .answer(.notAllowed) }
    if let code = records.refusal(of: dialler, target) { throw .answer(code) }
    let dial = WaitingDials.Dial(question, dialler: dialler, owner: owner)
    guard let other = presence.running[target] else {
      guard records.mayBeStarted(target) else { throw .answer(.applicationNotFound) }
      dials.add(dial, to: target, isRunning: false, now: now, &answers)
      return startNext(now: now)
    }
    switch other.state {
    case .suspended:
      tell(target, other.connection, thatWaits: dialler)
      throw .answer(.processSuspended)
    case .locked:
      tell(target, other.connection, thatWaits: dialler)
      dials.add(dial, to: target, isRunning: true, now: now, &answers)
    case .running, .notRunning, .hidden, .UNRECOGNIZED:
      introduce(question, of: dialler, to: target, other.connection)
    }
  }

  /// Tells an app that has enrolled as locked or suspended who waits for it by now.
  mutating func tellWhoWaits(for appID: String) {
    guard let running = presence.running[appID], running.state != .running else { return }
    for dialler in dials.diallers(to: appID) where records.refusal(of: dialler, appID) == nil {
      tell(appID, running.connection, thatWaits: dialler)
    }
  }

  /// Tells an app that is locked or suspended that another one waits for it.
  private mutating func tell(_ appID: String, _ number: ConnectionNumber, thatWaits dialler: String) {
    guard presence.noteWaiting(dialler, for: appID) else { return }
    answers.send(to: number) { $0.peerWaits.appID = dialler }
  }

  /// Continues the dials that wait for an app, after it has enrolled, maybe for the first time, or changed its state.
  mutating func continueDials(to appID: String, now: UInt64) {
    guard let running = presence.running[appID] else { return }
    for dial in dials.removeFrontDials(to: appID) {
      if let code = dial.dialler.flatMap({ records.refusal(of: $0, appID) }) {
        answers.fail(dial.question, code)
      } else {
        change(FrontChanges.Wish(question: dial.question, asker: dial.dialler, appID: appID), now: now)
      }
    }
    for dial in dials.proceed(to: appID, running.state, now: now, &answers) {
      guard let dialler = dial.dialler else { continue }
      if let code = records.refusal(of: dialler, appID) {
        answers.fail(dial.question, code)
      } else {
        introduce(dial.question, of: dialler, to: appID, running.connection)
      }
    }
  }

  private mutating func introduce(
    _ question: BrokerQuestion, of dialler: String, to acceptorID: String, _ acceptor: ConnectionNumber
  ) {
    guard answers.close(question) else { return }
    func side(_ appID: String, _ number: ConnectionNumber) -> BrokerIntroduction.Side {
      BrokerIntroduction.Side(
        appID: appID, connection: number, record: records.apps[appID],
        origin: connections[number]?.origin.number(originSecret) ?? 0)
    }
    let introduction = BrokerIntroduction(
      ticket: Data(Random.bytes(Self.ticketByteCount)), question: question.number,
      dialler: side(dialler, question.asker), acceptor: side(acceptorID, acceptor))
    answers.append(.introduce(introduction))
  }

  // MARK: Starting

  mutating func startNext(now: UInt64) {
    dials.startNext(records.programs, presence, now: now, &answers)
  }

  mutating func startIsOver(of appID: String, now: UInt64) {
    if dials.startIsOver(of: appID) { startNext(now: now) }
  }

  /// The program cannot be started.
  package mutating func startFailed(_ appID: String, now: UInt64) -> [BrokerOutput] {
    dials.refuse(appID, .applicationNotFound, &answers) { !$0.isRunning }
    startIsOver(of: appID, now: now)
    return answers.takeOutputs()
  }
}
