/// When the runtime looks at its deadlines next. Milliseconds of the runtime's clock.
///
/// An app for which nothing has a deadline is not woken: while something is under way, all deadlines are looked at every
/// second; retries and what is shorter are asked for where they are set.
struct WakeUp {
  private let clock: RuntimeClock
  /// The earliest that was asked for; nil while nothing has a deadline.
  private var time: UInt64?
  /// What the clock was asked for.
  private var armed: UInt64?
  /// Something is under way, and a look within *look time* is set.
  private var isLooking = false
  /// The deadlines have just been looked at, one by one.
  private var isExact = false

  /// Deadlines that are longer than this need not be asked for.
  static let lookTime: UInt64 = 1_000

  init(_ clock: RuntimeClock) { self.clock = clock }

  /// Has the deadlines looked at then, or earlier.
  mutating func wake(at time: UInt64) { self.time = min(time, self.time ?? .max) }

  /// The clock has woken the runtime.
  mutating func begin() { (time, armed, isLooking) = (nil, nil, false) }

  /// All deadlines were looked at: this is the next.
  mutating func end(next: UInt64?) {
    time = next
    isExact = true
  }

  /// Sets the clock where that is needed, after a piece of work.
  mutating func set(isUnderWay: @autoclosure () -> Bool) {
    // Nothing but a look at all deadlines leaves no new ones.
    if !isExact, !isLooking, isUnderWay() {
      wake(at: clock.now + Self.lookTime)
      isLooking = true
    }
    isExact = false
    guard let time, time < armed ?? .max else { return }
    armed = time
    clock.wake(at: time)
  }
}

extension Core {
  func wake(at time: UInt64) { wakeUp.wake(at: time) }

  func setClock() {
    guard life == .running else { return }
    wakeUp.set(isUnderWay: !peers.isEmpty || broker.introductions.nextDeadline != nil)
  }

  func lookAtDeadlines() {
    guard life == .running else { return }
    let now = runtime.now
    wakeUp.begin()
    broker.tick(now)
    messages.tick(now)
    for peer in peers.values { peer.tick(now) }
    let soon = now + WakeUp.lookTime
    let times =
      [broker.nextDeadline, messages.nextDeadline] + peers.values.map { $0.nextDeadline(soon: soon) }
    // A deadline that has passed still waits for somebody else, such as a connection that ends: the next look is in a second.
    wakeUp.end(next: times.compactMap(\.self).map { $0 > now ? $0 : soon }.min())
  }
}
