import ServiceWire

/// Tells the broker how many messages the app has on their way, while the launcher wants to know (BROKER-PROTOCOL.md, "The launcher").
final class TrafficReport {
  private unowned let core: Core
  /// The traffic that the broker was told last over this connection; nil while nobody wants to know.
  private var told: WireTraffic?
  private var isDue = false
  private var earliest: UInt64 = 0

  /// Milliseconds from one count to the next.
  static let pause: UInt64 = 1_000

  init(_ core: Core) { self.core = core }

  func setWanted(_ isWanted: Bool) {
    (told, isDue) = (isWanted ? WireTraffic() : nil, false)
    noteChange()
  }

  /// Something about messages with files has changed.
  func noteChange() {
    guard told != nil, !isDue else { return }
    isDue = true
    core.wake(at: max(core.runtime.now, earliest))
  }

  var nextDeadline: UInt64? { isDue ? earliest : nil }

  func tick(_ now: UInt64) {
    guard isDue, now >= earliest else { return }
    isDue = false
    // To count them costs something, too.
    earliest = now + Self.pause
    let traffic = core.traffic
    guard let told, told != traffic else { return }
    self.told = traffic
    core.broker.put(.traffic(traffic)) { _, _ in }
  }
}

extension Core {
  /// Something about messages with files has changed.
  func messagesChanged() {
    messageWatchers.yield(())
    broker.traffic.noteChange()
  }

  fileprivate var traffic: WireTraffic {
    var (sent, arriving) = (WireTraffic.Way(), WireTraffic.Way())
    for peer in peers.values {
      peer.outbox.add(to: &sent)
      peer.inbox.add(to: &arriving)
    }
    // A way that is set differs from one that is not, and with nothing in it says the same.
    return .with { [sent, arriving] in
      if sent.count > 0 { $0.sent = sent }
      if arriving.count > 0 { $0.arriving = arriving }
    }
  }
}

extension WireTraffic.Way {
  mutating func add(byteCount: UInt64, bytesDone: UInt64, waits: Bool) {
    count += 1
    if waits { waitingCount += 1 }
    self.byteCount.addSaturating(byteCount)
    self.bytesDone.addSaturating(min(bytesDone, byteCount))
  }
}
