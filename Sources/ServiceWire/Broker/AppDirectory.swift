import Foundation
import ServiceValues

/// A client that reads about apps.
struct BrokerAsker: Sendable {
  /// Nil for a client that is no app.
  let appID: String?
  let origin: BrokerOrigin
  let administers: Bool
}

/// What clients may read about apps: a view of the broker's state at one moment.
struct AppDirectory: Sendable {
  let records: BrokerRecords
  let presence: AppPresence
  let pending: PendingEnrolments
  /// The broker's own public key.
  let publicKey: Data
  let pageByteCount: Int

  struct Page<Element> {
    var elements: [Element] = []
    /// The app id of the last of them.
    var last = ""
    var hasMore = false
  }

  /// The elements in the order of their app ids, from behind `after` on, as far as a page has room.
  private func page<Element: WireSized>(
    after: String, in appIDs: some Sequence<String>, _ element: (String) -> Element?
  ) -> Page<Element> {
    var page = Page<Element>(last: after)
    var byteCount = 0
    for appID in appIDs.filter({ $0 > after }).sorted() {
      guard let next = element(appID) else { continue }
      if byteCount > 0, byteCount + next.byteCount > pageByteCount {
        page.hasMore = true
        break
      }
      page.elements.append(next)
      page.last = appID
      byteCount += next.byteCount
    }
    return page
  }

  // MARK: Providers

  /// A page of what a client finds, in the order of the app ids.
  func providers(after: String, for filter: WireFind, asker: BrokerAsker) -> Page<WireProvider> {
    page(after: after, in: filter.hasAppID ? [filter.appID] : Array(records.apps.keys)) {
      provider($0, for: filter, asker: asker)
    }
  }

  /// The app with the services that pass the filter, as the asker may see it; nil if it may not, or
  /// if none passes. An administrator's lists have no asker.
  func provider(_ appID: String, for filter: WireFind, asker: BrokerAsker?) -> WireProvider? {
    guard let app = records.apps[appID], let registration = app.registration else { return nil }
    guard !filter.hasAppID || filter.appID == appID else { return nil }
    guard appID != asker?.appID || filter.includesOwn else { return nil }
    if let asker, isHidden(appID, from: asker) { return nil }
    var services = registration.services.filter { service in
      (!filter.hasServiceID || filter.serviceID == service.id)
        && (!filter.hasVersion || filter.version == service.version)
        && (!filter.hasType || filter.type == service.type)
    }
    guard !services.isEmpty || asker == nil || filter.includesNonProviders && !filter.hasService else {
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
      $0.servers = registration.servers
      // A sandbox does not see what the user does when.
      let isShown = asker.map { $0.origin == .plain || $0.appID == appID || $0.administers } ?? true
      $0.state = isShown ? presence.state(of: appID) : .hidden
      $0.isInFront = isShown && presence.front == appID
      $0.isInstalled = records.mayBeStarted(appID)
      if asker?.appID == ApplicationID.launcher.text, let traffic = presence.running[appID]?.traffic {
        $0.traffic = traffic
      }
    }
  }

  /// Whether the app is hidden from the asker. An app sees those that it could call: of its own
  /// user, as policy allows. A client has no user, and a plain one can read the administrator's
  /// key: it sees all. One in a sandbox sees those that every app of the sandbox sees, and none
  /// while the sandbox has no app.
  private func isHidden(_ appID: String, from asker: BrokerAsker) -> Bool {
    if let consumer = asker.appID { return isHidden(appID, fromApp: consumer) }
    guard asker.origin != .plain, !asker.administers else { return false }
    let apps = records.apps.filter { $0.value.origin == asker.origin }.keys
    return apps.isEmpty || apps.contains { isHidden(appID, fromApp: $0) }
  }

  private func isHidden(_ appID: String, fromApp consumer: String) -> Bool {
    records.policy.denies(consumer, appID) || records.areOfDifferentUsers(consumer, appID)
      || records.apps[appID]?.registration?.takes(consumer, publicKey: records.apps[consumer]?.publicKey)
        == false
  }

  // MARK: An administrator's list

  func apps(after: String) -> WireApps {
    let page = page(after: after, in: knownAppIDs, app)
    return .with {
      $0.apps = page.elements
      $0.more = page.hasMore
      $0.brokerFingerprint = KeyFingerprint.of(publicKey)
      if after.isEmpty { $0.pending = pending.enrolments().map(pendingApp) }
    }
  }

  /// Ids of apps that enrolled, have a program or an approved key, or have a damaged file whose name
  /// gives their id.
  private var knownAppIDs: Set<String> {
    Set(records.apps.keys).union(records.programs.keys).union(
      records.damagedApps.union(records.damagedPrograms).filter { (try? ApplicationID($0)) != nil })
  }

  private func app(_ appID: String) -> WireApp? {
    let record = records.apps[appID]
    let filter = WireFind.with { $0.includesOwn = true }
    return .with {
      $0.provider =
        provider(appID, for: filter, asker: nil)
        ?? .with {
          $0.appID = appID
          $0.state = presence.state(of: appID)
          $0.isInFront = presence.front == appID
          $0.isInstalled = records.mayBeStarted(appID)
        }
      if let record {
        $0.identity.keyFingerprint = KeyFingerprint.of(record.publicKey)
        $0.identity.activationUser = record.activationUser
        $0.identity.enrolled = Int64(record.enrolled)
        $0.identity.origin = record.origin.label
        $0.isRegistered = record.registration != nil
      }
      if let program = records.programs[appID] { $0.program = program }
      $0.isDamaged = records.isDamaged(appID)
      $0.isProgramDamaged = records.isProgramDamaged(appID)
      $0.process = presence.running[appID]?.process ?? 0
    }
  }

  private func pendingApp(_ enrolment: BrokerEnrolment) -> WireApp {
    .with {
      $0.provider.appID = enrolment.appID
      $0.identity.keyFingerprint = KeyFingerprint.of(enrolment.publicKey)
      $0.identity.activationUser = enrolment.enrol.activationUser
      $0.identity.origin = enrolment.origin.label
      $0.process = enrolment.process
    }
  }
}

extension WireFind {
  /// Whether it is about a service, and not about apps.
  fileprivate var hasService: Bool { hasServiceID || hasVersion || hasType }

  /// The texts of a filter are ids and versions, so that each is compared as the bytes of a short
  /// ASCII text.
  func check() throws(BrokerRefusal) {
    guard !hasServiceID || (try? ServiceIdentifier(serviceID)) != nil,
      !hasVersion || (try? ServiceVersion(version)) != nil
    else { throw .fault(.malformed) }
    if hasAppID { try BrokerRefusal.checkAppID(appID) }
    if !after.isEmpty { try BrokerRefusal.checkAppID(after) }
    if hasType, case .UNRECOGNIZED = type { throw .fault(.malformed) }
  }
}

/// A message whose size decides about pages.
protocol WireSized {
  var byteCount: Int { get }
}

extension WireProvider: WireSized {
  var byteCount: Int { encodedByteCount }
}

extension WireApp: WireSized {
  var byteCount: Int { encodedByteCount }
}
