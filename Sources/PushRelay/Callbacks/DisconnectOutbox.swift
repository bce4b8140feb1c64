internal import Foundation
internal import Locks
package import Logging

/// Tells back ends that a channel has ended, again and again until they have heard it. The calls wait in
/// the store. Source: PUSH-PROTOCOL.md, *isDisconnected*.
package final class DisconnectOutbox: Sendable {
  private struct State: Sendable {
    var busyHosts: Set<String> = []
    var isReading = false
    /// Something may be due that the reading under way has not seen.
    var isDue = false
    /// Servers that could not be reached, and when they are called again.
    var backOffs: [String: BackOff] = [:]
  }

  private struct BackOff: Sendable {
    var failures = 0
    var until: Int64 = 0
  }

  private enum Outcome { case done, refused, unreachable }

  private static let backOffsMax = 10_000

  private let configuration: RelayConfiguration
  private let store: any PushStore
  private let vault: TokenVault
  private let caller: any CallbackCalling
  private let clock: any RelayClock
  private let metrics: RelayMetrics
  private let logger: Logger
  private let state = Guarded(State())

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

  /// Begins the calls that are due: one for each host, the one that waits longest first.
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
      let now = clock.now()
      let origins = state.withLock { Set($0.backOffs.filter { $0.value.until > now }.keys) }
      do {
        let calls = try await store.dueCalls(
          now: now, count: configuration.callbacksAtOnce, excludingHosts: busy, origins: origins)
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
      let outcome = await outcome(of: call)
      let now = clock.now()
      note(outcome, of: call.origin, now: now)
      if outcome == .done {
        metrics.callbacksDone.increment()
        try await store.finish(call)
      } else if now - call.created >= configuration.callbackLife {
        metrics.callbacksDropped.increment()
        try await store.finish(call)
      } else {
        metrics.callbackFailures.increment()
        try await store.postpone(call, until: now + Self.delay(afterFailures: call.attempts))
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

  /// 1, 2, 4 … seconds, at most an hour, each ± 50 %.
  private static func delay(afterFailures count: Int) -> Int64 {
    Int64(min(3600, pow(2, Double(min(count, 12)))) * 1000 * Double.random(in: 0.5...1.5))
  }

  /// A server that cannot be reached is left alone with all of its URLs. One that answers is not, whatever it
  /// says to one of them.
  private func note(_ outcome: Outcome, of origin: String, now: Int64) {
    state.withLock { state in
      guard outcome == .unreachable else {
        state.backOffs[origin] = nil
        return
      }
      if state.backOffs.count >= Self.backOffsMax {
        state.backOffs = state.backOffs.filter { $0.value.until > now }
        guard state.backOffs.count < Self.backOffsMax else { return }
      }
      var backOff = state.backOffs[origin] ?? BackOff()
      backOff.until = now + Self.delay(afterFailures: backOff.failures)
      backOff.failures += 1
      state.backOffs[origin] = backOff
    }
  }

  private func outcome(of call: DisconnectCall) async -> Outcome {
    guard let url = CallbackURL(call.url), let token = try? vault.open(call.sealedToken) else {
      logger.error("a waiting call cannot be read and is dropped; is the relay's key another one?")
      return .done
    }
    let request = CallbackRequest(
      url: url, method: "GET", headers: [("X-Good-GNP-Token", token)], body: nil)
    do {
      return (200..<300).contains(try await caller.call(request).status) ? .done : .refused
    } catch {
      switch error {
      case .unresolvedHost, .noConnection, .invalidCertificate: return .unreachable
      case .timeout, .invalidResponse, .unknownToken: return .refused
      }
    }
  }
}
