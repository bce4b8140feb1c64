package import CoreMetrics
internal import Locks
package import PushWire

/// What the relay counts. The names are those that Prometheus shows.
package struct RelayMetrics: Sendable {
  package let connections: Gauge
  package let eventsSent: Counter
  package let messagesAccepted: Counter
  package let storeFailures: Counter
  package let pingFailures: Counter
  package let callbacksDone: Counter
  package let callbackFailures: Counter
  package let callbacksDropped: Counter
  private let loopStall: Gauge
  /// The longest since it was published.
  private let longestStall: LongestStall
  private let channels: Gauge
  private let waitingEvents: Gauge
  private let waitingBytes: Gauge
  private let waitingCalls: Gauge
  private let goodbyes: [GoodbyeReason: Counter]
  private let factory: any MetricsFactory

  package init(factory: any MetricsFactory) {
    self.factory = factory
    let counter = { (name: String) in Counter(label: "push_" + name, factory: factory) }
    let gauge = { (name: String) in Gauge(label: "push_" + name, factory: factory) }
    connections = gauge("connections")
    eventsSent = counter("events_sent_total")
    messagesAccepted = counter("messages_accepted_total")
    storeFailures = counter("store_failures_total")
    pingFailures = counter("ping_failures_total")
    callbacksDone = counter("callbacks_done_total")
    callbackFailures = counter("callback_failures_total")
    callbacksDropped = counter("callbacks_dropped_total")
    loopStall = gauge("loop_stall_seconds")
    longestStall = LongestStall()
    channels = gauge("channels")
    waitingEvents = gauge("waiting_events")
    waitingBytes = gauge("waiting_bytes")
    waitingCalls = gauge("waiting_callbacks")
    goodbyes = Dictionary(
      uniqueKeysWithValues: GoodbyeReason.allCases.map { reason in
        (
          reason,
          Counter(label: "push_goodbyes_total", dimensions: [("reason", "\(reason)")], factory: factory)
        )
      })
  }

  package func goodbye(_ reason: GoodbyeReason) { goodbyes[reason]?.increment() }

  /// A request of a back end was answered.
  package func answered(_ interface: String, _ result: String, seconds: Double) {
    Counter(
      label: "push_requests_total", dimensions: [("interface", interface), ("result", result)],
      factory: factory
    ).increment()
    Recorder(
      label: "push_request_seconds", dimensions: [("interface", interface)], aggregate: true,
      factory: factory
    ).record(seconds)
  }

  /// A loop was late by that time.
  func stalled(seconds: Double) {
    longestStall.seconds.withLock { $0 = max($0, seconds) }
  }

  func publishStall() {
    loopStall.record(
      longestStall.seconds.withLock { longest in
        defer { longest = 0 }
        return longest
      })
  }

  package func record(_ totals: StoreTotals) {
    channels.record(totals.openChannels)
    waitingEvents.record(totals.waitingEvents)
    waitingBytes.record(totals.waitingBytes)
    waitingCalls.record(totals.waitingCalls)
  }
}

private final class LongestStall: Sendable {
  let seconds = Guarded(0.0)
}
