import Foundation
import ServiceValues

/// The rules about who may call whom, and what of it is switched off.
package struct BrokerPolicy: Sendable, Equatable {
  package private(set) var rules: [WireRule] = []
  /// Of all rules as they are encoded.
  package private(set) var byteCount = 0
  private var access = AccessRules()
  /// The rules cannot be read. What they deny is not known, so that everything is denied.
  package private(set) var isDamaged = false

  package static let damaged: BrokerPolicy = {
    var policy = BrokerPolicy()
    policy.isDamaged = true
    return policy
  }()

  package init() {}

  /// Throws `malformed` when one of them is no rule, or is there twice.
  package init(rules: [WireRule]) throws(ProtocolFault) {
    guard rules.allSatisfy({ $0.fault() == nil }), Set(rules).count == rules.count else { throw .malformed }
    for rule in rules { add(rule) }
  }

  mutating func add(_ rule: WireRule) {
    rules.append(rule)
    byteCount += rule.encodedByteCount
    access.insert(rule)
  }

  mutating func remove(at index: Int) {
    let rule = rules.remove(at: index)
    byteCount -= rule.encodedByteCount
    access.remove(rule)
  }

  /// Whether the consumer is kept from the provider altogether.
  package func denies(_ consumer: String?, _ provider: String) -> Bool {
    isDamaged || access.denies(consumer, provider)
  }

  /// What an app has to know.
  func concerning(_ appID: String) -> WirePolicy {
    // A denial without a consumer and a provider is one of everything.
    if isDamaged { return .with { $0.access = [.with { $0.effect = .deny }] } }
    let rules = rules.filter { $0.concerns(appID) }
    return .with {
      $0.rules = rules.filter { $0.effect == .disable }
      $0.access = rules.filter(\.isAboutAccess)
    }
  }
}

extension WireRule {
  /// Compares bytes: the value is a peer's text.
  private static func matches(_ wanted: String?, _ value: String) -> Bool {
    wanted?.utf8.elementsEqual(value.utf8) ?? true
  }

  private var anyConsumer: String? { hasConsumer ? consumer : nil }
  private var anyProvider: String? { hasProvider ? provider : nil }

  /// Whether it allows or denies.
  var isAboutAccess: Bool { effect == .allow || effect == .deny }

  /// Whether an app has to know of the rule.
  func concerns(_ appID: String) -> Bool {
    Self.matches(anyProvider, appID) || isAboutAccess && Self.matches(anyConsumer, appID)
  }

  /// What is wrong with it as a rule.
  func fault() -> String? {
    if hasConsumer, (try? ApplicationID(consumer)) == nil { return "the consumer is no application id" }
    if hasProvider, (try? ApplicationID(provider)) == nil { return "the provider is no application id" }
    if hasServiceID, (try? ServiceIdentifier(serviceID)) == nil { return "the service is no service id" }
    if hasVersion, (try? ServiceVersion(version)) == nil { return "the version is none" }
    if hasMethod, method.isEmpty || method.utf8.count > ExchangeLimits.nameByteCountMax {
      return "the method has 1 to \(ExchangeLimits.nameByteCountMax) bytes"
    }
    switch effect {
    case .deny, .allow:
      return hasServiceID || hasVersion || hasMethod ? "what allows or denies is for all services" : nil
    case .disable:
      if !hasServiceID { return "what is disabled has a service" }
      return hasMethod && !hasVersion ? "a method is disabled in a version" : nil
    case .UNRECOGNIZED: return "the effect is not known"
    }
  }

  /// The error of a request that the rule switches off.
  package func disables(consumer: String, service: String, version: String, method: String) -> UInt32? {
    guard effect == .disable, Self.matches(anyConsumer, consumer),
      Self.matches(serviceID, service),
      Self.matches(hasVersion ? self.version : nil, version),
      Self.matches(hasMethod ? self.method : nil, method)
    else { return nil }
    return hasMethod ? 10 : hasVersion ? 11 : 12
  }
}
