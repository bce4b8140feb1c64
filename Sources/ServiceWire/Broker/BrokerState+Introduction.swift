import Foundation
import ServiceValues
import SodiumPrimitives

extension BrokerState {
  struct WaitingDial: Sendable {
    let dialler: ConnectionNumber
    let question: UInt64
    /// Whether it waits for the app to be unlocked; else for its start.
    var isRunning: Bool
    var until: UInt64
  }

  struct Start: Sendable {
    let at: UInt64
    /// Whose dial it was.
    let owner: Owner
    /// The app has enrolled since, or could not be started.
    var isOver = false
  }

  mutating func dial(
    _ target: String, _ ask: UInt64, _ number: ConnectionNumber, _ appID: String, _ now: UInt64,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    try checkAppID(target)
    // One app has one connection, and cannot be both sides of a channel.
    guard target != appID, !records.policy.denies(appID, target) else {
      return fail(ask, .notAllowed, on: number, &outputs)
    }
    guard let other = running[target], let connection = connections[other] else {
      guard records.programs[target]?.isStarted == true, !records.damagedApps.contains(fileName(target))
      else {
        return fail(ask, .applicationNotFound, on: number, &outputs)
      }
      wait(for: target, number, ask, isRunning: false, until: now + limits.startTime, &outputs)
      // One start for all who wait for it.
      if starts[target]?.isOver ?? true, !startQueue.contains(target) { startQueue.append(target) }
      startNext(now: now, &outputs)
      return
    }
    switch connection.appState {
    case .suspended: fail(ask, .processSuspended, on: number, &outputs)
    case .locked: wait(for: target, number, ask, isRunning: true, until: now + limits.unlockTime, &outputs)
    case .running, .notRunning, .hidden, .UNRECOGNIZED:
      introduce(number, ask, appID, to: other, target, &outputs)
    }
  }

  private mutating func introduce(
    _ dialler: ConnectionNumber, _ ask: UInt64, _ diallerID: String, to acceptor: ConnectionNumber,
    _ acceptorID: String, _ outputs: inout [BrokerOutput]
  ) {
    let ticket = Data(Random.bytes(Self.ticketByteCount))
    func message(_ role: WireRole, _ peer: String, at number: ConnectionNumber) -> WireBrokerMessage {
      .with {
        $0.introduction = .with {
          $0.ticket = ticket
          $0.role = role
          $0.appID = peer
          $0.activationUser = records.apps[peer]?.activationUser ?? ""
          $0.publicKey = records.apps[peer]?.publicKey ?? Data()
          $0.number = role == .dialler ? ask : 0
          $0.origin = connections[number]?.origin.number(originSecret) ?? 0
        }
      }
    }
    func refusal(_ limit: String) -> WireBrokerMessage {
      answerMessage(ask) {
        $0.failure.error = UInt32(ServicesError.limitExceeded.rawValue)
        $0.failure.detail = limit
      }
    }
    guard connections[dialler]?.questions.remove(ask) != nil else { return }
    let introduction = BrokerIntroduction(
      ticket: ticket, dialler: dialler, acceptor: acceptor,
      toDialler: message(.dialler, acceptorID, at: acceptor),
      toAcceptor: message(.acceptor, diallerID, at: dialler),
      answer: answerMessage(ask) { $0.introduced.ticket = ticket },
      refusal: refusal("introductions that wait for the other app"),
      refusalOfDialler: refusal("introductions that this app has not taken"),
      refusalWithoutDescriptors: refusal("descriptors of the broker"))
    outputs.append(.introduce(introduction))
  }

  // MARK: Waiting

  private mutating func wait(
    for target: String, _ dialler: ConnectionNumber, _ ask: UInt64, isRunning: Bool, until: UInt64,
    _ outputs: inout [BrokerOutput]
  ) {
    waiting[target, default: []].append(
      WaitingDial(dialler: dialler, question: ask, isRunning: isRunning, until: until))
    tellWaiting(ask, dialler, isRunning ? .unlock : .start, &outputs)
  }

  private func tellWaiting(
    _ ask: UInt64, _ dialler: ConnectionNumber, _ reason: WireWaiting.Reason,
    _ outputs: inout [BrokerOutput]
  ) {
    outputs.append(
      .send(
        .with {
          $0.waiting.number = ask
          $0.waiting.reason = reason
        }, to: dialler))
  }

  /// The app has come, or changed its state: those who wait for it go on.
  mutating func continueDials(to appID: String, now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard let number = running[appID], let connection = connections[number], let mine = waiting[appID] else {
      return
    }
    switch connection.appState {
    case .locked:
      var dials = mine
      for i in dials.indices where !dials[i].isRunning {
        dials[i].isRunning = true
        dials[i].until = now + limits.unlockTime
        tellWaiting(dials[i].question, dials[i].dialler, .unlock, &outputs)
      }
      waiting[appID] = dials
    case .suspended: refuseWaiting(for: appID, with: .processSuspended, &outputs) { _ in true }
    case .running, .notRunning, .hidden, .UNRECOGNIZED:
      waiting[appID] = nil
      for dial in mine {
        guard let dialler = connections[dial.dialler]?.appID else { continue }
        guard !records.policy.denies(dialler, appID) else {
          fail(dial.question, .notAllowed, on: dial.dialler, &outputs)
          continue
        }
        introduce(dial.dialler, dial.question, dialler, to: number, appID, &outputs)
      }
    }
  }

  mutating func refuseWaiting(
    for appID: String, with code: ServicesError.Code, detail: String = "", _ outputs: inout [BrokerOutput],
    where isMeant: (WaitingDial) -> Bool
  ) {
    for dial in removeWaiting(for: appID, where: isMeant) {
      fail(dial.question, code, detail: detail, on: dial.dialler, &outputs)
    }
  }

  @discardableResult
  mutating func removeWaiting(for appID: String, where isMeant: (WaitingDial) -> Bool) -> [WaitingDial] {
    guard let all = waiting[appID] else { return [] }
    let rest = all.filter { !isMeant($0) }
    waiting[appID] = rest.isEmpty ? nil : rest
    return all.filter(isMeant)
  }

  // MARK: Starting

  /// Starts as many programs as may be started at once.
  mutating func startNext(now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard !startQueue.isEmpty else { return }
    var rest: [String] = []
    for appID in startQueue {
      guard running[appID] == nil, let program = records.programs[appID], program.isStarted,
        var dials = waiting[appID]
      else {
        continue
      }
      let owners = dials.compactMap { connections[$0.dialler]?.owner }
      // Started less than *start time* ago: not again before that.
      guard starts[appID] == nil, let owner = owners.first(where: mayStartAnother) else {
        rest.append(appID)
        continue
      }
      starts[appID] = Start(at: now, owner: owner)
      for i in dials.indices { dials[i].until = now + limits.startTime }
      waiting[appID] = dials
      outputs.append(.start(appID: appID, program: program.path, arguments: program.arguments))
    }
    startQueue = rest
  }

  /// At most half of what others leave, and always a few.
  private func mayStartAnother(_ owner: Owner) -> Bool {
    let all = starts.values.filter { !$0.isOver }
    let own = all.count { $0.owner == owner }
    return all.count < limits.startCountMax
      && own < max(Self.startOfOwnerMin, (limits.startCountMax - (all.count - own)) / 2)
  }

  private static let startOfOwnerMin = 2

  mutating func startIsOver(of appID: String, now: UInt64, _ outputs: inout [BrokerOutput]) {
    guard starts[appID]?.isOver == false else { return }
    starts[appID]?.isOver = true
    startNext(now: now, &outputs)
  }

  /// The program cannot be started.
  package mutating func startFailed(_ appID: String, now: UInt64) -> [BrokerOutput] {
    var outputs: [BrokerOutput] = []
    refuseWaiting(for: appID, with: .applicationNotFound, &outputs) { !$0.isRunning }
    startIsOver(of: appID, now: now, &outputs)
    return outputs
  }

  mutating func tickStarts(now: UInt64, _ outputs: inout [BrokerOutput]) {
    let ended = starts.filter { now >= $0.value.at + limits.startTime }.map(\.key)
    for appID in ended.sorted() {
      if starts.removeValue(forKey: appID)?.isOver == false { outputs.append(.endProgram(appID: appID)) }
    }
    startNext(now: now, &outputs)
    for appID in waiting.keys.sorted() {
      refuseWaiting(for: appID, with: .notAllowed, &outputs) { $0.isRunning && now >= $0.until }
      let isQueued = startQueue.contains(appID)
      refuseWaiting(
        for: appID, with: isQueued ? .limitExceeded : .applicationNotFound,
        detail: isQueued ? "programs being started" : "", &outputs
      ) { now >= $0.until }
    }
  }
}
