import Foundation
import ServiceValues
import ServiceWire

/// Who offers what, and who is in front.
extension Runtime {
  // MARK: Finding

  func providers(_ filter: WireFind) async throws -> [WireProvider] {
    var found: [WireProvider] = []
    var filter = filter
    while true {
      guard case .providers(let page) = try await ask(.find(filter)).kind else {
        throw ServicesError(.general, detail: "the broker answered something else")
      }
      found += page.providers
      guard page.more, let last = page.providers.last else { return found }
      filter.after = last.appID
    }
  }

  // MARK: Watching

  /// What the broker takes of one connection.
  private static let watchCountMax = 64

  func watch(
    _ filter: WireFind, _ tell: @escaping @Sendable (Result<[WireProvider], ServicesError>) -> Void
  ) -> UInt64 {
    core.performAndWait { core in
      core.lastWatcher += 1
      let watcher = core.lastWatcher
      guard core.life != .stopped, !core.broker.hasGivenUp else {
        tell(.failure(core.broker.lastFailure ?? ServicesError(.brokerUnavailable)))
        return watcher
      }
      guard core.broker.watches.count < Self.watchCountMax else {
        tell(.failure(ServicesError(.limitExceeded, detail: "watches of one app: \(Self.watchCountMax)")))
        return watcher
      }
      core.broker.watches[watcher] = Watch(filter: filter, tell: tell)
      if core.broker.phase == .up { self.begin(watcher, &core) }
      return watcher
    }
  }

  func endWatch(_ watcher: UInt64) {
    core.perform { core in
      guard let watch = core.broker.watches.removeValue(forKey: watcher), let number = watch.number,
        core.broker.phase == .up
      else { return }
      if !watch.isComplete { core.broker.endedWatches.insert(number) }
      self.put(.unwatch(.with { $0.watch = number }), &core) { core, _ in
        // Nothing of the watch comes behind this answer.
        core.broker.endedWatches.remove(number)
        core.broker.questions[number] = nil
      }
    }
  }

  func watchAgain(_ core: inout Core) {
    for watcher in core.broker.watches.keys.sorted() { begin(watcher, &core) }
  }

  private func begin(_ watcher: UInt64, _ core: inout Core) {
    guard let filter = core.broker.watches[watcher]?.filter else { return }
    let old = core.broker.watches[watcher]?.known ?? [:]
    let wasComplete = core.broker.watches[watcher]?.isComplete == true
    core.broker.watches[watcher]?.known = [:]
    core.broker.watches[watcher]?.isComplete = false
    let number = put(.watch(filter), &core) { core, result in
      switch result {
      case .success(let answer):
        guard case .providers(let page) = answer.kind else { return }
        for provider in page.providers { core.broker.watches[watcher]?.known[provider.appID] = provider }
        guard !page.more else { return }
        core.broker.watches[watcher]?.isComplete = true
        // After a broken connection only what differs is news.
        if !wasComplete || core.broker.watches[watcher]?.known != old { self.tell(watcher, core) }
      case .failure(let error):
        guard core.broker.phase == .up else { return }
        core.broker.watches.removeValue(forKey: watcher)?.tell(.failure(error))
      }
    }
    core.broker.watches[watcher]?.number = number
  }

  private func tell(_ watcher: UInt64, _ core: Core) {
    guard let watch = core.broker.watches[watcher] else { return }
    watch.tell(.success(watch.known.values.sorted { $0.appID < $1.appID }))
  }

  func take(_ change: WireProvidersChanged, _ core: inout Core) {
    guard let watcher = core.broker.watches.first(where: { $0.value.number == change.watch })?.key else {
      return
    }
    for provider in change.present { core.broker.watches[watcher]?.known[provider.appID] = provider }
    for appID in change.gone { core.broker.watches[watcher]?.known[appID] = nil }
    if core.broker.watches[watcher]?.isComplete == true { tell(watcher, core) }
  }

  func endWatches(_ error: ServicesError, _ core: inout Core) {
    let watches = core.broker.watches.values
    core.broker.watches = [:]
    for watch in watches { watch.tell(.failure(error)) }
  }

  // MARK: Front

  func watchFront(_ continuation: AsyncStream<Bool>.Continuation) {
    core.perform { core in
      guard core.life != .stopped, !core.broker.hasGivenUp else { return continuation.finish() }
      core.lastWatcher += 1
      let watcher = core.lastWatcher
      core.frontWatchers[watcher] = continuation
      continuation.onTermination = { _ in self.core.perform { $0.frontWatchers[watcher] = nil } }
    }
  }

  func setState(_ state: ApplicationState) async throws {
    let isRunning: Bool = core.performAndWait { core in
      core.state = state
      if state == .running { self.unlock(&core) }
      if state == .suspended {
        let locked = core.locked
        core.locked = []
        for request in locked { self.refuse(request.id, .processSuspended, request.peer, &core) }
      }
      return core.broker.phase != .down
    }
    // Without a broker it is told at the next enrolment.
    if isRunning { _ = try await ask(.state(.with { $0.state = state.wire })) }
  }
}
