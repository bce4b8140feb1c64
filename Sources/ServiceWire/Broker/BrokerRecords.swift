package import Foundation
import ServiceValues

/// What a broker knows beyond its own life.
package struct BrokerRecords: Sendable, Equatable {
  package struct App: Sendable, Equatable {
    /// DER; the first that was enrolled.
    package var publicKey: Data
    package var activationUser: String
    /// Milliseconds since 1970.
    package var enrolled: UInt64
    package var registration: WireRegister?

    package init(publicKey: Data, activationUser: String, enrolled: UInt64, registration: WireRegister? = nil)
    {
      self.publicKey = publicKey
      self.activationUser = activationUser
      self.enrolled = enrolled
      self.registration = registration
    }
  }

  package var apps: [String: App] = [:]
  package var rules: [WireRule] = []

  package init() {}

  /// The bytes of a registry file: the same for the same records.
  package func encoded() throws -> Data {
    let registry = WireRegistry.with {
      $0.records = apps.sorted { $0.key < $1.key }.map { appID, app in
        .with {
          $0.appID = appID
          $0.publicKey = app.publicKey
          $0.activationUser = app.activationUser
          $0.enrolled = Int64(app.enrolled)
          if let registration = app.registration { $0.registration = registration }
        }
      }
      $0.rules = rules
    }
    return try registry.serializedData()
  }

  /// Throws when the bytes are no registry, or name an app twice.
  package init(decoding bytes: Data) throws {
    let registry = try WireRegistry(serializedBytes: bytes)
    for record in registry.records {
      guard (try? ApplicationID(record.appID)) != nil, apps[record.appID] == nil, record.enrolled >= 0,
        !record.publicKey.isEmpty
      else { throw ProtocolFault.malformed }
      apps[record.appID] = App(
        publicKey: record.publicKey, activationUser: record.activationUser, enrolled: UInt64(record.enrolled),
        registration: record.hasRegistration ? record.registration : nil)
    }
    guard registry.rules.allSatisfy({ $0.fault == nil }) else { throw ProtocolFault.malformed }
    rules = registry.rules
  }
}

extension WireRule {
  private static func matches(_ wanted: String?, _ value: String) -> Bool { wanted == nil || wanted == value }

  /// Whether the rule keeps the consumer from the provider altogether.
  func denies(_ consumer: String, _ provider: String) -> Bool {
    effect == .deny && Self.matches(hasConsumer ? self.consumer : nil, consumer)
      && Self.matches(hasProvider ? self.provider : nil, provider)
  }

  /// Whether the rule concerns the app as a provider.
  func concerns(provider: String) -> Bool { Self.matches(hasProvider ? self.provider : nil, provider) }

  /// What is wrong with it as a rule.
  var fault: String? {
    switch effect {
    case .deny: hasServiceID || hasVersion || hasMethod ? "a denial is for all services" : nil
    case .disable:
      if !hasServiceID {
        "what is disabled has a service"
      } else {
        hasMethod && !hasVersion ? "a method is disabled in a version" : nil
      }
    case .UNRECOGNIZED: "the effect is not known"
    }
  }

  /// The error of a request that the rule switches off.
  package func disables(consumer: String, service: String, version: String, method: String) -> UInt32? {
    guard effect == .disable, Self.matches(hasConsumer ? self.consumer : nil, consumer), serviceID == service,
      Self.matches(hasVersion ? self.version : nil, version),
      Self.matches(hasMethod ? self.method : nil, method)
    else { return nil }
    return hasMethod ? 10 : hasVersion ? 11 : 12
  }
}
