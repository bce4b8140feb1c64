internal import Foundation
package import Logging
internal import Synchronization

/// Tells back ends that a channel has ended, again and again until they have heard it. The calls wait in
/// the store. Source: PUSH-PROTOCOL.md, *isDisconnected*.
package final class DisconnectOutbox: Sendable {
  private struct State: Sendable {
    var busyHosts: Set<String> = []
    var isReading = false
    /// Something may be due that the reading under way has not seen.
    var isDue = false
  }

  private let configuration: RelayConfiguration
  private let store: any PushStore
  private let vault: TokenVault
  private let caller: any CallbackCalling
  private let clock: any RelayClock
  private let metrics: RelayMetrics
  private let logger: Logger
  private let state = Mutex(State())

  package init(
    configuration: RelayConfiguration, store: any PushStore, vault: TokenVault, caller: any CallbackCalling,
    clock: any RelayClock, metrics: RelayMetrics, logger: Logger
  ) {
    self.configuration = configuration
    self.store = store
    self.vault = vault
    self.caller = caller
    self.clock = clock
    self.metrics = metrics
    self.logger = logger
  }

  /// A call was stored, or a host is free again.
  package func wake() {
    Task { await run() }
  }

  /// Begins the calls that are due: one for each host, the oldest first.
  package func run() async {
    let isFirst = state.withLock { state in
      state.isDue = true
      defer { state.isReading = true }
      return !state.isReading
    }
    guard isFirst else { return }
    while true {
      let busy: Set<String>? = state.withLock { state in
        guard state.isDue, state.busyHosts.count < configuration.callbacksAtOnce else {
          state.isReading = false
          return nil
        }
        state.isDue = false
        return state.busyHosts
      }
      guard let busy else { return }
      do {
        let calls = try await store.dueCalls(
          now: clock.now(), count: configuration.callbacksAtOnce, excluding: busy)
        for call in calls {
          let isFree = state.withLock { state in
            state.busyHosts.count < configuration.callbacksAtOnce
              && state.busyHosts.insert(call.host).inserted
          }
          if isFree { Task { await make(call) } }
        }
      } catch {
        metrics.storeFailures.increment()
        logger.error("waiting calls cannot be read: \(error)")
      }
    }
  }

  private func make(_ call: DisconnectCall) async {
    do {
      let isDone = await isDone(call)
      let now = clock.now()
      if isDone {
        metrics.callbacksDone.increment()
        try await store.finish(call)
      } else if now - call.created >= configuration.callbackLife {
        metrics.callbacksDropped.increment()
        try await store.finish(call)
      } else {
        metrics.callbackFailures.increment()
        let seconds = min(3600, pow(2, Double(min(call.attempts, 12))))
        try await store.postpone(call, until: now + Int64(seconds * 1000 * Double.random(in: 0.5...1.5)))
      }
    } catch {
      metrics.storeFailures.increment()
      logger.error("the result of a call cannot be stored: \(error)")
      // The call is still due. Its host stays busy for a while, or it would be called without a pause.
      try? await clock.sleep(milliseconds: 10_000)
    }
    state.withLock { _ = $0.busyHosts.remove(call.host) }
    wake()
  }

  private func isDone(_ call: DisconnectCall) async -> Bool {
    guard let url = CallbackURL(call.url), let token = try? vault.open(call.sealedToken) else {
      logger.error("a waiting call cannot be read and is dropped; is the relay's key another one?")
      return true
    }
    let request = CallbackRequest(
      url: url, method: "GET", headers: [("X-Good-GNP-Token", token)], body: nil)
    guard let response = try? await caller.call(request) else { return false }
    return (200..<300).contains(response.status)
  }
}
