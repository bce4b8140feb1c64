import Foundation

extension BrokerState {
  /// The app as an asker may see it, or nil: what of its services the filter wants.
  func provider(_ appID: String, for filter: WireFind, asker: String?) -> WireProvider? {
    guard let app = records.apps[appID], let registration = app.registration else { return nil }
    guard appID != asker || filter.includesOwn else { return nil }
    if let asker, isDenied(asker, appID) { return nil }
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
      $0.state = state(of: appID)
      $0.isInFront = front == appID
    }
  }

  func state(of appID: String) -> WireAppState {
    running[appID].flatMap { connections[$0]?.appState } ?? .notRunning
  }

  /// In the order of their ids.
  func providers(for filter: WireFind, asker: String?) -> [WireProvider] {
    records.apps.keys.sorted().compactMap { provider($0, for: filter, asker: asker) }
  }

  func answerProviders(
    _ found: [WireProvider], _ ask: UInt64, _ number: ConnectionNumber, _ outputs: inout [BrokerOutput]
  ) {
    let pages = pages(of: found)
    for (i, page) in pages.enumerated() {
      outputs.append(
        answer(ask, to: number) {
          $0.providers = .with {
            $0.providers = page
            $0.more = i < pages.count - 1
          }
        })
    }
  }

  /// At least one page, be it empty.
  func pages<Element: WireSized>(of elements: [Element]) -> [[Element]] {
    var pages: [[Element]] = [[]]
    var byteCount = 0
    for element in elements {
      if byteCount > 0, byteCount + element.byteCount > limits.pageByteCount {
        pages.append([])
        byteCount = 0
      }
      pages[pages.count - 1].append(element)
      byteCount += element.byteCount
    }
    return pages
  }

  // MARK: Watching

  mutating func watch(
    _ filter: WireFind, _ ask: UInt64, _ number: ConnectionNumber, _ connection: Connection,
    _ outputs: inout [BrokerOutput]
  ) throws(Fault) {
    connections[number]?.questions.remove(ask)
    guard connection.watches.count < limits.watchCountMax else {
      throw Fault(fault: .limitExceeded, detail: "watches")
    }
    let found = providers(for: filter, asker: connection.appID)
    answerProviders(found, ask, number, &outputs)
    connections[number]?.watches[ask] = Watch(
      filter: filter, known: Dictionary(uniqueKeysWithValues: found.map { ($0.appID, $0) }))
  }

  /// Something about an app has changed: those who watch for it hear what is different for them.
  mutating func tellWatchers(about appID: String, _ outputs: inout [BrokerOutput]) {
    for (number, connection) in connections.sorted(by: { $0.key < $1.key }) {
      for (watch, state) in connection.watches.sorted(by: { $0.key < $1.key }) {
        let now = provider(appID, for: state.filter, asker: connection.appID)
        guard now != state.known[appID] else { continue }
        connections[number]?.watches[watch]?.known[appID] = now
        outputs.append(
          .send(
            .with {
              $0.providersChanged = .with {
                $0.watch = watch
                if let now { $0.present = [now] } else { $0.gone = [appID] }
              }
            }, to: number))
      }
    }
  }
}

/// A message whose size decides about pages.
protocol WireSized {
  var byteCount: Int { get }
}

extension WireProvider: WireSized {
  var byteCount: Int {
    appID.utf8.count + name.utf8.count + entitlementID.utf8.count + entitlementVersion.utf8.count + icon.count
      + 64
      + services.reduce(0) { $0 + $1.id.utf8.count + $1.version.utf8.count + $1.definition.count + 32 }
  }
}

extension WireApp: WireSized {
  var byteCount: Int { provider.byteCount + keyFingerprint.count + activationUser.utf8.count + 64 }
}
