import Foundation
import ServiceValues

/// Dials that wait until the other app has started or is unlocked, and the programs that are
/// started for them: each one at most once in *start time*, and no more at once than the diallers'
/// owners may have. A wish to bring an app to front that does not run waits for its start, too.
struct WaitingDials: Sendable {
  struct Dial: Sendable {
    enum Purpose: Sendable {
      case channel
      /// To bring the app to front, which needs no unlocked app.
      case front
    }

    let question: BrokerQuestion
    /// The app that dials; nil for the user, who brings an app to front.
    let dialler: String?
    let owner: BrokerOwner
    let purpose: Purpose
    /// Whether it waits for the app to be unlocked; else for its start.
    fileprivate(set) var isRunning = false
    fileprivate(set) var until: UInt64 = 0

    init(
      _ question: BrokerQuestion, dialler: String?, owner: BrokerOwner, purpose: Purpose = .channel
    ) {
      self.question = question
      self.dialler = dialler
      self.owner = owner
      self.purpose = purpose
    }

    fileprivate mutating func wait(isRunning: Bool, until: UInt64, _ answers: inout BrokerAnswers) {
      self.isRunning = isRunning
      self.until = until
      let number = question.number
      answers.send(to: question.asker) {
        $0.waiting.number = number
        $0.waiting.reason = isRunning ? .unlock : .start
      }
    }
  }

  private struct Start {
    let at: UInt64
    /// The owner of the dial that it is for.
    let owner: BrokerOwner
    /// The app has enrolled since, or could not be started.
    var isOver = false
  }

  private static let startOfOwnerMin = 2

  private let limits: BrokerLimits
  /// The dials by the app that is dialled. No list is empty.
  private var dials: [String: [Dial]] = [:]
  /// Programs that were started less than *start time* ago.
  private var starts: [String: Start] = [:]
  /// Apps that wait to be started.
  private var queue: [String] = []

  init(limits: BrokerLimits) { self.limits = limits }

  var isEmpty: Bool { dials.isEmpty && starts.isEmpty && queue.isEmpty }

  /// Adds a dial to an app that is locked (`isRunning`), or that has to be started.
  mutating func add(
    _ dial: Dial, to target: String, isRunning: Bool, now: UInt64, _ answers: inout BrokerAnswers
  ) {
    var dial = dial
    let time = isRunning ? limits.unlockTime : limits.startTime
    dial.wait(isRunning: isRunning, until: now + time, &answers)
    dials[target, default: []].append(dial)
    // One start for all who wait for it.
    guard !isRunning, starts[target]?.isOver ?? true else { return }
    if dial.dialler == nil { queue.removeAll { $0 == target } }
    // The user's choice comes before what apps have asked for.
    if !queue.contains(target) { queue.insert(target, at: dial.dialler == nil ? 0 : queue.count) }
  }

  /// Drops the dials of a connection that has ended.
  mutating func remove(dialler: ConnectionNumber) {
    for target in dials.keys { remove(target) { $0.question.asker == dialler } }
  }

  /// Removes and returns the dials that wait to bring the app to front.
  mutating func removeFrontDials(to target: String) -> [Dial] { remove(target) { $0.purpose == .front } }

  /// Refuses all dials that wait to bring an app to front.
  mutating func refuseFrontDials(_ answers: inout BrokerAnswers) {
    for target in dials.keys.sorted() {
      refuse(target, .frontRefused, &answers) { $0.purpose == .front }
    }
  }

  /// Continues after the app has enrolled or changed its state. Returns the dials to answer now; if
  /// there are none, they go on waiting, or were refused.
  mutating func proceed(
    to target: String, _ state: WireAppState, now: UInt64, _ answers: inout BrokerAnswers
  ) -> [Dial] {
    switch state {
    case .locked:
      var mine = dials[target] ?? []
      for i in mine.indices where !mine[i].isRunning {
        mine[i].wait(isRunning: true, until: now + limits.unlockTime, &answers)
      }
      if !mine.isEmpty { dials[target] = mine }
      return []
    case .suspended:
      refuse(target, .processSuspended, &answers) { _ in true }
      return []
    case .running, .notRunning, .hidden, .UNRECOGNIZED: return dials.removeValue(forKey: target) ?? []
    }
  }

  /// The apps that wait for a channel with this one, each once.
  func diallers(to target: String) -> [String] {
    Set((dials[target] ?? []).lazy.filter { $0.purpose == .channel }.compactMap(\.dialler)).sorted()
  }

  mutating func refuse(
    _ target: String, _ code: ServicesError.Code, detail: String = "", _ answers: inout BrokerAnswers,
    where isMeant: (Dial) -> Bool
  ) {
    for dial in remove(target, where: isMeant) { answers.fail(dial.question, code, detail: detail) }
  }

  @discardableResult
  private mutating func remove(_ target: String, where isMeant: (Dial) -> Bool) -> [Dial] {
    guard let all = dials[target] else { return [] }
    let rest = all.filter { !isMeant($0) }
    dials[target] = rest.isEmpty ? nil : rest
    return all.filter(isMeant)
  }

  // MARK: Starting

  /// Starts as many programs as may be started at once.
  mutating func startNext(
    _ programs: [String: WireProgram], _ presence: AppPresence, now: UInt64,
    _ answers: inout BrokerAnswers
  ) {
    guard !queue.isEmpty else { return }
    var rest: [String] = []
    for appID in queue {
      guard presence.running[appID] == nil, let program = programs[appID], program.isStarted,
        var mine = dials[appID]
      else { continue }
      // Started less than *start time* ago: not again before that.
      let isChosen = mine.contains { $0.dialler == nil }
      guard starts[appID] == nil,
        let owner = isChosen ? mine[0].owner : mine.map(\.owner).first(where: mayStartAnother)
      else {
        rest.append(appID)
        continue
      }
      starts[appID] = Start(at: now, owner: owner)
      for i in mine.indices where !mine[i].isRunning { mine[i].until = now + limits.startTime }
      dials[appID] = mine
      answers.append(.start(appID: appID, program: program.path, arguments: program.arguments))
    }
    queue = rest
  }

  /// At most half of what others leave, and always a few.
  private func mayStartAnother(_ owner: BrokerOwner) -> Bool {
    let all = starts.values.filter { !$0.isOver }
    let own = all.count { $0.owner == owner }
    return all.count < limits.startCountMax
      && own < max(Self.startOfOwnerMin, (limits.startCountMax - (all.count - own)) / 2)
  }

  /// The app has enrolled, or cannot be started. Returns whether its start was under way.
  mutating func startIsOver(of appID: String) -> Bool {
    guard starts[appID]?.isOver == false else { return false }
    starts[appID]?.isOver = true
    return true
  }

  /// Ends the programs that did not enrol in time, and refuses all dials that waited for them: those
  /// that came meanwhile, too.
  mutating func endStarts(now: UInt64, _ answers: inout BrokerAnswers) {
    let ended = starts.filter { now >= $0.value.at + limits.startTime }.keys
    for appID in ended.sorted() where starts.removeValue(forKey: appID)?.isOver == false {
      answers.append(.endProgram(appID: appID))
      refuse(appID, .applicationNotFound, &answers) { !$0.isRunning }
    }
  }

  /// Refuses the dials whose time has passed.
  mutating func refuseOverdue(now: UInt64, _ answers: inout BrokerAnswers) {
    for appID in dials.keys.sorted() {
      refuse(appID, .notAllowed, &answers) { $0.isRunning && now >= $0.until }
      let isQueued = queue.contains(appID)
      refuse(
        appID, isQueued ? .limitExceeded : .applicationNotFound,
        detail: isQueued ? "programs being started" : "", &answers
      ) { now >= $0.until }
    }
  }
}

extension WireProgram {
  /// Whether it names a program, and not an approved key alone.
  var isStarted: Bool { !path.isEmpty }
}
