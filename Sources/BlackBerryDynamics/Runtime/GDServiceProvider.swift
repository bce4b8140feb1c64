import AppKinetics

/// An app, and what it offers.
public final class GDServiceProvider: NSObject, Sendable {
  /// The id that the app is entitled as.
  public let identifier: String
  /// The version of the entitlement.
  public let version: String
  /// The app's name, for people. It is the app's own word.
  public let name: String
  /// The app's address, for `send(to:)`.
  public let address: String?
  /// PNG; nil without one. The vendor has an image here.
  public let icon: Data?
  /// Whether the icon comes later: false, because discovery waits for icons.
  public let iconPending: Bool
  /// The servers behind the app, in the order in which it states them.
  public let serverCluster: [GDAppServer]
  /// What it offers, of what was asked for.
  public let services: [GDServiceDetail]

  init(_ provider: Provider) {
    identifier = provider.entitlementID
    version = provider.entitlementVersion
    name = provider.name
    address = provider.application.text
    icon = provider.icon
    iconPending = false
    serverCluster = provider.servers.map { GDAppServer($0) }
    services = provider.services.map {
      GDServiceDetail(
        service: $0.id.text, andVersion: $0.version.text,
        andServiceType: $0.type == .server ? .server : .application)
    }
  }
}

/// A service in one version.
public final class GDServiceDetail: NSObject, Sendable {
  /// The service's id.
  public let identifier: String
  /// The service's version.
  public let version: String
  /// Whether an app or a server offers it.
  public let serviceType: GDServiceType

  /// Describes a service.
  public init(service: String, andVersion version: String, andServiceType type: GDServiceType) {
    (identifier, self.version, serviceType) = (service, version, type)
  }
}

/// A server behind an app.
public final class GDAppServer: NSObject, @unchecked Sendable {
  // Invariant: `NSNumber` is immutable, and Foundation does not say so.

  /// A host name or an IP address.
  public let server: String
  /// The TCP port, from 1 to 65,535.
  public let port: NSNumber
  /// 1 is the highest.
  public let priority: NSNumber

  init(_ server: AppServer) {
    self.server = server.host
    port = NSNumber(value: server.port)
    priority = NSNumber(value: server.priority)
  }
}
