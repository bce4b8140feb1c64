@preconcurrency import Dispatch
import ServiceWire

/// When the runtime looks at its deadlines next. Milliseconds of ``Runtime/now``.
struct WakeUp: Sendable {
  /// The earliest that was asked for; nil while nothing has a deadline.
  fileprivate(set) var time: UInt64?
  /// What the timer is set to.
  fileprivate var armed: UInt64?
  /// The deadlines have just been looked at, one by one.
  fileprivate var isExact = false
}

extension Core {
  /// Has the deadlines looked at then, or earlier.
  mutating func wake(at time: UInt64) { wakeUp.time = min(time, wakeUp.time ?? .max) }

  /// Sets the timer where that is needed, after so many pieces of work.
  mutating func setTimer(workCount: Int) {
    guard life == .running else { return }
    let now = Runtime.now
    // Nothing but a look at all deadlines leaves no new ones.
    if !(wakeUp.isExact && workCount == 1), mayHaveDeadlines { wake(at: now + Runtime.lookTime) }
    wakeUp.isExact = false
    guard let time = wakeUp.time, time < wakeUp.armed ?? .max else { return }
    wakeUp.armed = time
    let pause = DispatchTimeInterval.milliseconds(Int(clamping: time - min(time, now)))
    timer.schedule(deadline: .now() + pause, leeway: .milliseconds(10))
  }

  /// Something is there that may have a deadline.
  private var mayHaveDeadlines: Bool {
    !peers.isEmpty || !locked.isEmpty || !lockedOffers.isEmpty || !broker.introductions.isEmpty
      || !broker.handed.isEmpty
  }
}

/// Deadlines. An app for which nothing has one is not woken: while something is under way, all of them
/// are looked at every second; retries and what is shorter are asked for where they are set.
extension Runtime {
  /// Of deadlines that are longer than this.
  fileprivate static let lookTime: UInt64 = 1_000
  /// How long a channel stays open on which nothing happens.
  static let idleChannelTime: UInt64 = 60_000

  func lookAtDeadlines(_ core: inout Core) {
    guard core.life == .running else { return }
    let now = Self.now
    (core.wakeUp.time, core.wakeUp.armed) = (nil, nil)
    tickBroker(now, &core)
    for application in core.peers.keys {
      let isDelivering = core.peers[application]?.deliveries.isIdle == false
      guard let outputs = core.peers[application]?.exchange.tick(now: now, isDelivering: isDelivering) else {
        continue
      }
      act(outputs, application, &core)
      tickDeliveries(application, now, &core)
      closeIdleChannels(application, now, &core)
    }
    let late = core.locked.filter { now >= $0.until }
    core.locked.removeAll { now >= $0.until }
    for request in late { refuse(request.id, .notAllowed, request.peer, &core) }
    continueOffers(&core, now: now)
    if let next = nextDeadline(core, now) { core.wake(at: next) }
    core.wakeUp.isExact = true
  }

  private func nextDeadline(_ core: Core, _ now: UInt64) -> UInt64? {
    let broker = core.broker
    var times: [UInt64?] = [broker.phase == .down ? broker.retryAt : nil]
    times += broker.introductions.values.map(\.1)
    times += broker.handed.values.map(\.2)
    times += core.locked.map(\.until)
    times += core.lockedOffers.map(\.until)
    times += core.peers.values.map { $0.nextDeadline(now, soon: now + Self.lookTime) }
    return times.compactMap(\.self).min()
  }
}

extension Peer {
  fileprivate func nextDeadline(_ now: UInt64, soon: UInt64) -> UInt64 {
    let retry = exchange.retryTime ?? .max
    if channels.isEmpty, !isDialling, exchange.isIdle, let retryAt { return min(retry, max(retryAt, now)) }
    guard isIdle, !isDialling, channels.values.allSatisfy(\.hasBegun),
      let lastUsed = channels.values.map(\.lastUsed).min()
    else { return min(retry, soon) }
    return min(retry, max(lastUsed + Runtime.idleChannelTime, now))
  }
}
