import Foundation
import ServiceValues

extension BrokerState {
  struct Watch: Sendable {
    let filter: WireFind
    /// While the list of what there is goes on: the app id that it has got to.
    var listedTo: String? = ""
    /// What the watcher knows, as the hash of each provider.
    var known: [String: Int] = [:]
    /// Apps of which something may be new to the watcher.
    var dirty: Set<String> = []
    var isAllDirty = false

    var hasMore: Bool { listedTo != nil || isAllDirty || !dirty.isEmpty }
  }

  /// The texts of a filter are ids and versions, so that each is compared as the bytes of a short ASCII text.
  func check(_ filter: WireFind) throws(Fault) {
    guard !filter.hasServiceID || (try? ServiceIdentifier(filter.serviceID)) != nil,
      !filter.hasVersion || (try? ServiceVersion(filter.version)) != nil
    else { throw Fault(fault: .malformed) }
    if filter.hasAppID { try checkAppID(filter.appID) }
    if !filter.after.isEmpty { try checkAppID(filter.after) }
    if filter.hasType, case .UNRECOGNIZED = filter.type { throw Fault(fault: .malformed) }
  }

  /// Whether what policy keeps from who asks is not shown to it. An app does not see whom it may not call; a client in a sandbox, whom
  /// any app of the sandbox may not.
  private func isHidden(_ appID: String, from asker: Connection) -> Bool {
    if let consumer = asker.appID { return records.policy.denies(consumer, appID) }
    guard asker.origin != .plain, !asker.administers else { return false }
    // Also where it has no app yet.
    return records.policy.denies(nil, appID)
      || records.apps.contains { $0.value.origin == asker.origin && records.policy.denies($0.key, appID) }
  }

  /// The app as an asker may see it, or nil: what of its services the filter wants. An administrator's lists have no asker.
  func provider(_ appID: String, for filter: WireFind, asker: Connection?) -> WireProvider? {
    guard let app = records.apps[appID], let registration = app.registration else { return nil }
    guard !filter.hasAppID || filter.appID == appID else { return nil }
    guard appID != asker?.appID || filter.includesOwn else { return nil }
    if let asker, isHidden(appID, from: asker) { return nil }
    var services = registration.services.filter { service in
      (!filter.hasServiceID || filter.serviceID == service.id)
        && (!filter.hasVersion || filter.version == service.version)
        && (!filter.hasType || filter.type == service.type)
    }
    // Who asks for nothing in particular sees apps without services, too.
    guard !services.isEmpty || !filter.hasServiceID && !filter.hasVersion && !filter.hasType else {
      return nil
    }
    if !filter.includesContents {
      for i in services.indices { services[i].definition = Data() }
    }
    return .with {
      $0.appID = appID
      $0.name = registration.name
      $0.entitlementID = registration.entitlementID
      $0.entitlementVersion = registration.entitlementVersion
      if filter.includesContents { $0.icon = registration.icon }
      $0.services = services
      // A sandbox does not see what the user does when.
      let isShown = asker.map { $0.origin == .plain || $0.appID == appID || $0.administers } ?? true
      $0.state = isShown ? state(of: appID) : .hidden
      $0.isInFront = isShown && front == appID
    }
  }

  /// Ids that the filter may find.
  func appIDs(for filter: WireFind) -> [String] {
    filter.hasAppID ? [filter.appID] : Array(records.apps.keys)
  }

  func state(of appID: String) -> WireAppState {
    running[appID].flatMap { connections[$0]?.appState } ?? .notRunning
  }

  // MARK: Pages

  struct Page<Element> {
    var elements: [Element] = []
    /// The app id of the last of them.
    var last = ""
    var hasMore = false
  }

  /// In the order of their ids, from behind `after` on, and no more than a page takes.
  func page<Element: WireSized>(
    after: String, in appIDs: some Sequence<String>, _ element: (String) -> Element?
  ) -> Page<Element> {
    var page = Page<Element>(last: after)
    var byteCount = 0
    for appID in appIDs.filter({ $0 > after }).sorted() {
      guard let next = element(appID) else { continue }
      if byteCount > 0, byteCount + next.byteCount > limits.pageByteCount {
        page.hasMore = true
        break
      }
      page.elements.append(next)
      page.last = appID
      byteCount += next.byteCount
    }
    return page
  }

  // MARK: Lists

  struct List: Sendable {
    enum Kind: Sendable {
      case providers(WireFind)
      case apps(after: String)
    }

    let question: UInt64
    let kind: Kind
  }

  /// Answers when the connection has room: who asks for much at once and reads slowly is not cut off.
  mutating func list(
    _ kind: List.Kind, _ ask: UInt64, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) {
    connections[number]?.lists.append(List(question: ask, kind: kind))
    askForMore(number, &outputs)
  }

  private mutating func answer(_ list: List, on number: ConnectionNumber, _ outputs: inout [BrokerOutput]) {
    guard let asker = connections[number] else { return }
    switch list.kind {
    case .providers(let filter):
      let page = page(after: filter.after, in: appIDs(for: filter)) {
        provider($0, for: filter, asker: asker)
      }
      done(list.question, on: number, &outputs) {
        $0.providers.providers = page.elements
        $0.providers.more = page.hasMore
      }
    case .apps(let after):
      let apps = apps(after: after)
      done(list.question, on: number, &outputs) { $0.apps = apps }
    }
  }

  // MARK: Watching

  mutating func watch(
    _ filter: WireFind, _ ask: UInt64, _ number: ConnectionNumber, _ connection: Connection,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    guard connection.watches.count < limits.watchCountMax else {
      throw Fault(fault: .limitExceeded, detail: "watches")
    }
    // No fault of who asks: others may have them all.
    guard watchers.reduce(0, { $0 + (connections[$1]?.watches.count ?? 0) }) < limits.watchTotalMax else {
      return fail(ask, .limitExceeded, detail: "watches of all connections", on: number, &outputs)
    }
    connections[number]?.questions.remove(ask)
    connections[number]?.watches[ask] = Watch(filter: filter)
    watchers.insert(number)
    askForMore(number, &outputs)
  }

  mutating func askForMore(_ number: ConnectionNumber, _ outputs: inout [BrokerOutput]) {
    guard connections[number]?.isMoreAsked == false else { return }
    connections[number]?.isMoreAsked = true
    outputs.append(.more(number))
  }

  /// Something about an app has changed: those who watch for it hear what is different for them when their connection has room.
  mutating func tellWatchers(about appID: String, _ outputs: inout [BrokerOutput]) {
    tellWatchers(about: appID, of: nil, &outputs)
  }

  /// An app of the sandbox has come or gone: what clients there may see is what all of its apps may.
  mutating func tellClients(of origin: BrokerOrigin, _ outputs: inout [BrokerOutput]) {
    guard origin != .plain else { return }
    for number in watchers.sorted() {
      guard let connection = connections[number], connection.isAttending, connection.origin == origin else {
        continue
      }
      for watch in connection.watches.keys { connections[number]?.watches[watch]?.isAllDirty = true }
      askForMore(number, &outputs)
    }
  }

  /// Nil means all, of apps and of watching apps. What an app is kept from may be hidden from clients of its sandbox, too.
  mutating func tellWatchers(about appID: String?, of watcher: String?, _ outputs: inout [BrokerOutput]) {
    for number in watchers.sorted() {
      guard let connection = connections[number],
        watcher == nil || connection.appID == watcher || connection.isAttending && connection.origin != .plain
      else { continue }
      var isDirty = false
      for (watch, state) in connections[number]?.watches ?? [:] {
        if let appID {
          guard !state.filter.hasAppID || state.filter.appID == appID else { continue }
          // More than there can be: those that are gone meanwhile are found by looking at all.
          if state.dirty.count > limits.appCountMax {
            connections[number]?.watches[watch]?.dirty = []
            connections[number]?.watches[watch]?.isAllDirty = true
          } else if !state.isAllDirty {
            connections[number]?.watches[watch]?.dirty.insert(appID)
          }
        } else {
          connections[number]?.watches[watch]?.isAllDirty = true
        }
        isDirty = true
      }
      if isDirty { askForMore(number, &outputs) }
    }
  }

  /// The connection has room for what is new to it: some of it comes out, and `more` when that was not all.
  package mutating func `continue`(_ number: ConnectionNumber) -> [BrokerOutput] {
    guard var connection = connections[number], connection.isMoreAsked else { return [] }
    var outputs: [BrokerOutput] = []
    connection.isMoreAsked = false
    if connection.isPolicyDirty, let appID = connection.appID {
      connection.isPolicyDirty = false
      let policy = records.policy.concerning(appID)
      outputs.append(.send(.with { $0.policy = policy }, to: number))
      connections[number] = connection
    } else if !connection.lists.isEmpty, !connection.wasList || !connection.hasNews {
      connection.wasList = true
      let list = connection.lists.removeFirst()
      connections[number] = connection
      answer(list, on: number, &outputs)
    } else {
      connection.wasList = false
      let ready = connection.watches.filter { $0.value.hasMore }.keys.sorted()
      // One after another, so that none keeps the others from being told.
      if let next = ready.first(where: { $0 > connection.lastWatch }) ?? ready.first,
        var watch = connection.watches[next]
      {
        connection.lastWatch = next
        let message = watch.advance(next, self, asker: connection)
        connection.watches[next] = watch
        if let message { outputs.append(.send(message, to: number)) }
      }
      connections[number] = connection
    }
    if connection.isPolicyDirty || !connection.lists.isEmpty || connection.hasNews {
      connections[number]?.isMoreAsked = true
      outputs.append(.more(number))
    }
    return outputs
  }
}

extension BrokerState.Connection {
  /// For one of its watches.
  fileprivate var hasNews: Bool { watches.contains { $0.value.hasMore } }
}

extension BrokerState.Watch {
  /// The next page of the list, or of what is new; nil when nothing is new after all.
  mutating func advance(_ number: UInt64, _ state: BrokerState, asker: BrokerState.Connection)
    -> WireBrokerMessage?
  {
    if let listedTo { return list(number, state, asker, listedTo) }
    if isAllDirty {
      isAllDirty = false
      dirty = Set(known.keys).union(state.records.apps.keys)
    }
    var changed = WireProvidersChanged.with { $0.watch = number }
    var byteCount = 0
    for appID in dirty.sorted() {
      let provider = state.provider(appID, for: filter, asker: asker)
      let hash = provider?.encodedHash
      if hash != known[appID] {
        if byteCount > 0, byteCount + (provider?.byteCount ?? 0) > state.limits.pageByteCount { break }
        byteCount += provider?.byteCount ?? appID.utf8.count
        known[appID] = hash
        if let provider { changed.present.append(provider) } else { changed.gone.append(appID) }
      }
      dirty.remove(appID)
    }
    guard !changed.present.isEmpty || !changed.gone.isEmpty else { return nil }
    return .with { $0.providersChanged = changed }
  }

  private mutating func list(
    _ number: UInt64, _ state: BrokerState, _ asker: BrokerState.Connection, _ listedTo: String
  ) -> WireBrokerMessage {
    let page = state.page(after: listedTo, in: state.appIDs(for: filter)) {
      state.provider($0, for: filter, asker: asker)
    }
    for provider in page.elements { known[provider.appID] = provider.encodedHash }
    self.listedTo = page.hasMore ? page.last : nil
    return .with {
      $0.answer.number = number
      $0.answer.providers.providers = page.elements
      $0.answer.providers.more = page.hasMore
    }
  }
}

/// A message whose size decides about pages.
protocol WireSized {
  var byteCount: Int { get }
}

extension WireProvider: WireSized {
  var byteCount: Int { encodedByteCount }

  /// Hash of the encoded bytes: hashes of texts would normalise names that apps chose.
  fileprivate var encodedHash: Int {
    var hasher = Hasher()
    // `Data` itself hashes no more than its beginning.
    (try? serializedBytes() as [UInt8])?.withUnsafeBytes { hasher.combine(bytes: $0) }
    return hasher.finalize()
  }
}

extension WireApp: WireSized {
  var byteCount: Int { encodedByteCount }
}
