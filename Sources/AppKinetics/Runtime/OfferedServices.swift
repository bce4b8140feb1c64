import Foundation
import ServiceValues
import ServiceWire

/// What this app offers to others, and who may use it.
struct OfferedServices {
  var offers: [ServiceKey: Offer] = [:]
  /// Takes what nobody else does.
  var rest: Offer.Handler?
  private var disabled: Set<DisabledPart> = []
  /// The broker's rules.
  var policy = WirePolicy() {
    didSet { access = AccessRules(policy.access) }
  }
  private(set) var access = AccessRules()
  /// Whose requests the app takes; nil: everybody's.
  var callers: Set<Caller>?

  /// All of them, or none. Throws `invalidRegistration` for what is offered already.
  mutating func add(_ added: [Offer]) throws(ServicesError) {
    var all = offers
    for offer in added {
      guard all.updateValue(offer, forKey: offer.key) == nil else {
        throw ServicesError(
          .invalidRegistration, detail: "\(offer.key.service) \(offer.key.version) is offered already")
      }
    }
    offers = all
  }

  /// Without a version: all of them.
  mutating func remove(_ service: ServiceIdentifier, _ version: ServiceVersion?) {
    offers = offers.filter { $0.key.service != service || version != nil && $0.key.version != version }
  }

  mutating func setDisabled(_ isDisabled: Bool, _ part: DisabledPart) {
    if isDisabled { disabled.insert(part) } else { disabled.remove(part) }
  }

  /// For the broker, in the order of their names.
  var registered: [WireService] {
    offers.values.sorted {
      ($0.definition.serviceID.text, $0.definition.version.text)
        < ($1.definition.serviceID.text, $1.definition.version.text)
    }.map { offer in
      .with {
        $0.id = offer.definition.serviceID.text
        $0.version = offer.definition.version.text
        $0.type = offer.type == .server ? .server : .application
        $0.definition = Data(offer.definition.jsonText.utf8)
      }
    }
  }

  /// What the request is for, whatever may be done with it.
  func offer(of request: WireRequest) -> Offer? { ServiceKey(request).flatMap { self[$0, request.method] } }

  /// A service that is offered does not take a method that it does not have, where somebody takes the rest.
  subscript(key: ServiceKey, method: String) -> Offer? {
    let offered = offers[key]
    guard offered?.definition.methods[method] == nil, let rest else { return offered }
    return Offer(unoffered: key, to: rest)
  }

  /// Whether the other app may send no requests at all.
  func denies(_ peer: PeerSession) -> Bool {
    let appID = peer.application.text
    let isTaken = callers?.contains { $0.isMet(by: appID, peer.fingerprint) } ?? true
    return !isTaken || access.denies(appID, peer.runtime.appID)
  }

  /// The checks before the app is asked, in the order of the protocol's page.
  func offer(of request: WireRequest, from peer: PeerSession) throws(ServicesError) -> Offer {
    guard !denies(peer) else { throw ServicesError(.notAllowed) }
    guard let found = offer(of: request) else {
      let service = try? ServiceIdentifier(request.serviceID)
      let isOffered = offers.keys.contains { $0.service == service }
      throw ServicesError(isOffered ? .versionNotFound : .serviceNotFound)
    }
    let (service, version) = (found.definition.serviceID, found.definition.version)
    guard rest != nil || found.definition.methods[request.method] != nil else {
      throw ServicesError(.methodNotFound)
    }
    for rule in policy.rules {
      if let number = rule.disables(
        consumer: peer.application.text, service: request.serviceID, version: request.version,
        method: request.method)
      {
        throw ServicesError(.init(rawValue: Int32(number)))
      }
    }
    if disabled.isEmpty { return found }
    if disabled.contains(DisabledPart(service: service, version: nil, method: nil)) {
      throw ServicesError(.serviceDisabled)
    }
    if disabled.contains(DisabledPart(service: service, version: version, method: nil)) {
      throw ServicesError(.versionDisabled)
    }
    if disabled.contains(DisabledPart(service: service, version: version, method: request.method)) {
      throw ServicesError(.methodDisabled)
    }
    return found
  }
}

struct ServiceKey: Hashable, Sendable {
  let service: ServiceIdentifier
  let version: ServiceVersion
}

extension ServiceKey {
  /// Nil for an id or a version that cannot be: both are short, and of ASCII, before anything is compared.
  init?(_ request: WireRequest) {
    guard let service = try? ServiceIdentifier(request.serviceID),
      let version = try? ServiceVersion(request.version)
    else { return nil }
    self.init(service: service, version: version)
  }
}

/// A service that the app offers.
struct Offer: Sendable {
  enum Handler: Sendable {
    case function(ServiceHandler)
    case object(any ServiceProvider)
  }

  let definition: ServiceDefinition
  let type: ServiceType
  let validates: Bool
  let handler: Handler

  var key: ServiceKey { ServiceKey(service: definition.serviceID, version: definition.version) }

  /// The object that hears of files on their way; functions do not.
  var provider: (any ServiceProvider)? {
    if case .object(let provider) = handler { provider } else { nil }
  }
}

extension Offer {
  /// An offer stands here for a service, a version or a method that nobody has offered: nothing is known of its params, nor whether it has replies.
  init(unoffered key: ServiceKey, to handler: Handler) {
    self.init(
      definition: ServiceDefinition(serviceID: key.service, version: key.version, methods: [:]),
      type: .application, validates: false, handler: handler)
  }
}

/// What the app itself has switched off: nil stands for all.
struct DisabledPart: Hashable, Sendable {
  let service: ServiceIdentifier
  let version: ServiceVersion?
  let method: String?
}
