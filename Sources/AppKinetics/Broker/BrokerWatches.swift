import Foundation
import ServiceValues
import ServiceWire

/// Lists of providers that follow what the broker says. They outlive connections to it.
final class BrokerWatches {
  typealias Teller = @Sendable (Result<[WireProvider], ServicesError>) -> Void

  private struct Watch {
    let filter: WireFind
    let tell: Teller
    /// Of the question on the present connection.
    var number: UInt64?
    var isComplete = false
    var known: [String: WireProvider] = [:]

    func tellKnown() { tell(.success(known.values.sorted { $0.appID < $1.appID })) }
  }

  private unowned let core: Core
  private var watches: [UInt64: Watch] = [:]
  /// Questions that began watches which have ended; the rest of their first list is passed over.
  private var ended: Set<UInt64> = []

  /// What the broker takes of one connection.
  private static let countMax = 64

  init(_ core: Core) { self.core = core }

  // MARK: For the app

  func add(_ filter: WireFind, _ tell: @escaping Teller) -> UInt64 {
    let watcher = core.nextWatcher()
    guard !core.runtime.options.isSimulation else {
      tell(.failure(Core.simulation))
      return watcher
    }
    guard core.life != .stopped, !core.broker.hasGivenUp else {
      tell(.failure(core.broker.lastFailure ?? ServicesError(.brokerUnavailable)))
      return watcher
    }
    guard watches.count < Self.countMax else {
      tell(.failure(ServicesError(.limitExceeded, detail: "watches of one app: \(Self.countMax)")))
      return watcher
    }
    watches[watcher] = Watch(filter: filter, tell: tell)
    if core.broker.phase == .up { begin(watcher) }
    return watcher
  }

  func remove(_ watcher: UInt64) {
    guard let watch = watches.removeValue(forKey: watcher), let number = watch.number,
      core.broker.phase == .up
    else { return }
    if !watch.isComplete { ended.insert(number) }
    core.broker.put(.unwatch(.with { $0.watch = number })) { core, _ in
      // Nothing of the watch comes behind this answer.
      core.broker.watches.ended.remove(number)
      core.broker.forgetQuestion(number)
    }
  }

  /// There will be no broker any more.
  func end(_ error: ServicesError) {
    let all = watches.values
    watches = [:]
    for watch in all { watch.tell(.failure(error)) }
  }

  // MARK: Of the broker

  /// Further pages may answer the question.
  func isListing(_ number: UInt64) -> Bool {
    ended.contains(number) || watches.values.contains { $0.number == number }
  }

  /// There is a connection again.
  func beginAgain() {
    for watcher in watches.keys.sorted() { begin(watcher) }
  }

  func connectionEnded() {
    ended = []
    for watcher in watches.keys { watches[watcher]?.number = nil }
  }

  private func begin(_ watcher: UInt64) {
    guard let watch = watches[watcher] else { return }
    watches[watcher]?.known = [:]
    watches[watcher]?.isComplete = false
    // After a broken connection only what differs is news.
    let old = watch.isComplete ? watch.known : nil
    let number = core.broker.put(.watch(watch.filter)) { core, result in
      core.broker.watches.take(result, of: watcher, old: old)
    }
    watches[watcher]?.number = number
  }

  private func take(
    _ result: Result<WireAnswer, ServicesError>, of watcher: UInt64, old: [String: WireProvider]?
  ) {
    switch result {
    case .success(let answer):
      guard case .providers(let page) = answer.kind else { return }
      for provider in page.providers { watches[watcher]?.known[provider.appID] = provider }
      if page.more { return }
      ended.remove(answer.number)
      watches[watcher]?.isComplete = true
      if let watch = watches[watcher], watch.known != old { watch.tellKnown() }
    case .failure(let error):
      guard core.broker.phase == .up else { return }
      watches.removeValue(forKey: watcher)?.tell(.failure(error))
    }
  }

  func take(_ change: WireProvidersChanged) {
    guard let watcher = watches.first(where: { $0.value.number == change.watch })?.key else { return }
    for provider in change.present { watches[watcher]?.known[provider.appID] = provider }
    for appID in change.gone { watches[watcher]?.known[appID] = nil }
    if let watch = watches[watcher], watch.isComplete { watch.tellKnown() }
  }
}

extension Runtime {
  /// Who offers what, page by page.
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
}
