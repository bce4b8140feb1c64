import Foundation
import ServiceValues

/// The messages that wait for room on one connection: its app's policy, lists, and the news of
/// watches. Lists and watches take turns, and so do the watches.
struct BrokerFeed: Sendable {
  enum List: Sendable {
    case providers(WireFind)
    case apps(after: String)
  }

  let asker: BrokerAsker
  fileprivate(set) var watches: [UInt64: ProviderWatch] = [:]
  fileprivate var lists: [(question: BrokerQuestion, list: List)] = []
  fileprivate var isPolicyDirty = false
  /// Whether `more` was put out and `continue` did not follow yet.
  fileprivate var isMoreAsked = false
  /// Whether the last message was a list, and not news of a watch.
  private var wasList = false
  /// The watch whose news went out last.
  private var lastWatch: UInt64 = 0

  init(asker: BrokerAsker) { self.asker = asker }

  private var hasNews: Bool { watches.contains { $0.value.hasMore } }
  fileprivate var hasMore: Bool { isPolicyDirty || !lists.isEmpty || hasNews }

  /// Sends the next message.
  fileprivate mutating func advance(
    _ number: ConnectionNumber, _ directory: AppDirectory, _ answers: inout BrokerAnswers
  ) {
    if isPolicyDirty, let appID = asker.appID {
      isPolicyDirty = false
      answers.send(to: number) { $0.policy = directory.records.policy.concerning(appID) }
    } else if !lists.isEmpty, !wasList || !hasNews {
      wasList = true
      let (question, list) = lists.removeFirst()
      answer(question, list, directory, &answers)
    } else {
      wasList = false
      let ready = watches.filter { $0.value.hasMore }.keys.sorted()
      // One after another, so that none keeps the others from being told.
      guard let next = ready.first(where: { $0 > lastWatch }) ?? ready.first else { return }
      lastWatch = next
      if let message = watches[next]?.advance(next, directory, asker) {
        answers.append(.send(message, to: number))
      }
    }
  }

  private func answer(
    _ question: BrokerQuestion, _ list: List, _ directory: AppDirectory, _ answers: inout BrokerAnswers
  ) {
    switch list {
    case .providers(let filter):
      let page = directory.providers(after: filter.after, for: filter, asker: asker)
      answers.done(question) {
        $0.providers.providers = page.elements
        $0.providers.more = page.hasMore
      }
    case .apps(let after): answers.done(question) { $0.apps = directory.apps(after: after) }
    }
  }
}

/// The feeds of all apps and other clients. A feed with something to send puts out `more` once,
/// until ``continue(_:_:_:)`` follows: a peer that asks for much at once and reads slowly is not
/// cut off.
struct BrokerFeeds: Sendable {
  private let limits: BrokerLimits
  private var feeds: [ConnectionNumber: BrokerFeed] = [:]
  /// Connections with watches.
  private var watchers: Set<ConnectionNumber> = []

  init(limits: BrokerLimits) { self.limits = limits }

  subscript(number: ConnectionNumber) -> BrokerFeed? { feeds[number] }

  mutating func begin(_ number: ConnectionNumber, asker: BrokerAsker) {
    feeds[number] = BrokerFeed(asker: asker)
  }

  mutating func end(_ number: ConnectionNumber) {
    feeds[number] = nil
    watchers.remove(number)
  }

  private mutating func askForMore(_ number: ConnectionNumber, _ answers: inout BrokerAnswers) {
    guard feeds[number]?.isMoreAsked == false else { return }
    feeds[number]?.isMoreAsked = true
    answers.append(.more(number))
  }

  /// The connection has room: sends one message, and puts out `more` if that was not all.
  mutating func `continue`(
    _ number: ConnectionNumber, _ directory: AppDirectory, _ answers: inout BrokerAnswers
  ) {
    guard feeds[number]?.isMoreAsked == true else { return }
    feeds[number]?.isMoreAsked = false
    feeds[number]?.advance(number, directory, &answers)
    if feeds[number]?.hasMore == true { askForMore(number, &answers) }
  }

  // MARK: Questions

  mutating func list(_ list: BrokerFeed.List, _ question: BrokerQuestion, _ answers: inout BrokerAnswers) {
    feeds[question.asker]?.lists.append((question, list))
    askForMore(question.asker, &answers)
  }

  func isWatch(_ question: BrokerQuestion) -> Bool { feeds[question.asker]?.watches[question.number] != nil }

  /// Begins a watch under the question's number. Throws `limitExceeded`.
  mutating func watch(
    _ filter: WireFind, _ question: BrokerQuestion, _ answers: inout BrokerAnswers
  ) throws(BrokerRefusal) {
    let number = question.asker
    guard (feeds[number]?.watches.count ?? 0) < limits.watchCountMax else {
      throw .fault(.limitExceeded, detail: "watches")
    }
    // No fault of who asks: others may have them all.
    guard watchers.reduce(0, { $0 + (feeds[$1]?.watches.count ?? 0) }) < limits.watchTotalMax else {
      throw .answer(.limitExceeded, detail: "watches of all connections")
    }
    answers.close(question)
    feeds[number]?.watches[question.number] = ProviderWatch(filter: filter)
    watchers.insert(number)
    askForMore(number, &answers)
  }

  mutating func unwatch(_ watch: UInt64, of number: ConnectionNumber) {
    feeds[number]?.watches[watch] = nil
    if feeds[number]?.watches.isEmpty == true { watchers.remove(number) }
  }

  // MARK: News

  /// The policy of the connection's app has changed.
  mutating func noteChangeOfPolicy(for number: ConnectionNumber, _ answers: inout BrokerAnswers) {
    feeds[number]?.isPolicyDirty = true
    askForMore(number, &answers)
  }

  /// Something about an app has changed, for one watching app or for all: nil means all of both.
  /// What is hidden from an app may be hidden from the clients of its sandbox, too.
  mutating func noteChange(
    of appID: String?, for watcher: String? = nil, _ answers: inout BrokerAnswers
  ) {
    note(appID, &answers) {
      watcher == nil || $0.appID == watcher || $0.appID == nil && $0.origin != .plain
    }
  }

  /// The launcher alone is shown it.
  mutating func noteTraffic(of appID: String, _ answers: inout BrokerAnswers) {
    note(appID, &answers) { $0.appID == ApplicationID.launcher.text }
  }

  /// An app of the sandbox was added or forgotten: the clients there see only what all of its apps
  /// may see.
  mutating func noteChange(in origin: BrokerOrigin, _ answers: inout BrokerAnswers) {
    guard origin != .plain else { return }
    note(nil, &answers) { $0.appID == nil && $0.origin == origin }
  }

  private mutating func note(
    _ appID: String?, _ answers: inout BrokerAnswers, where isMeant: (BrokerAsker) -> Bool
  ) {
    for number in watchers.sorted() {
      guard let feed = feeds[number], isMeant(feed.asker) else { continue }
      let concerned = feed.watches.filter { $0.value.concerns(appID) }.keys
      for watch in concerned {
        feeds[number]?.watches[watch]?.noteChange(of: appID, appCountMax: limits.appCountMax)
      }
      if !concerned.isEmpty { askForMore(number, &answers) }
    }
  }
}
