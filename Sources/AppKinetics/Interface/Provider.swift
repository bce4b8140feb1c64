public import Foundation
public import ServiceValues
package import ServiceWire

/// Who uses a service: a program of the user, or a server behind it.
public enum ServiceType: Sendable, Hashable {
  /// A program of the user offers the service.
  case application
  /// A server offers the service, and the app stands for it.
  case server
}

/// An app, and what it offers, as the broker knows it.
public struct Provider: Sendable, Hashable {
  /// A service in one version, as an app offers it.
  public struct Service: Sendable, Hashable {
    /// The id of the service.
    public var id: ServiceIdentifier
    /// The version of the service.
    public var version: ServiceVersion
    /// What offers the service behind the app.
    public var type: ServiceType
    /// Nil when contents were not asked for, or there is none.
    public var definition: ServiceDefinition?
  }

  /// What the broker knows of the app's process.
  public enum State: Sendable, Hashable {
    /// The app is not connected, or has itself reported this state to the broker.
    case notRunning, running, suspended, locked
    /// The broker does not say: this app is in a sandbox, which does not see what the user does when.
    case hidden
  }

  /// Messages with files that an app has on their way, as it says: how many, and nothing of what is in them.
  public struct Traffic: Sendable, Hashable {
    /// One direction.
    public struct Way: Sendable, Hashable {
      /// The number of messages.
      public var count: UInt64
      /// The number of messages of which nothing moves now; they are among ``count``.
      public var waitingCount: UInt64
      /// The bytes of all files.
      public var byteCount: UInt64
      /// The bytes of all files that the receiver has.
      public var bytesDone: UInt64

      init(_ wire: WireTraffic.Way) {
        (count, byteCount) = (wire.count, wire.byteCount)
        // It is another app's word.
        (waitingCount, bytesDone) = (min(wire.waitingCount, count), min(wire.bytesDone, byteCount))
      }
    }

    /// To other apps.
    public var sent: Way
    /// From other apps.
    public var arriving: Way

    package init(_ wire: WireTraffic) { (sent, arriving) = (Way(wire.sent), Way(wire.arriving)) }
  }

  /// Its address.
  public var application: ApplicationID
  /// Whether it is the app that asked.
  public var isOwn: Bool
  /// The app's name, for people. It is the app's own word, and nobody has checked it.
  public var name: String
  /// The id that the app is entitled as.
  public var entitlementID: String
  /// The version of the entitlement, as text.
  public var entitlementVersion: String
  /// PNG; nil when contents were not asked for, or there is none.
  public var icon: Data?
  /// Those that were asked for.
  public var services: [Service]
  /// The servers behind its services of the type ``ServiceType/server``, in the order in which the app states
  /// them; ``serversToTry()`` has them in the order in which to connect. Empty when it states none.
  public var servers: [AppServer]
  /// What the broker knows of the app's process.
  public var state: State
  /// False as well when the state is hidden.
  public var isInFront: Bool
  /// Whether the broker knows a program that starts it when it does not run.
  public var isInstalled: Bool
  /// The messages that the app has on its way. Only the launcher (`opendynamics.launcher`) is told; for other apps, and of an app that says nothing, it is nil.
  public var traffic: Traffic?

  /// Nil for what is no app.
  init?(_ wire: WireProvider, askedBy own: ApplicationID) {
    guard let application = try? ApplicationID(wire.appID) else { return nil }
    self.application = application
    isOwn = application == own
    name = wire.name
    entitlementID = wire.entitlementID
    entitlementVersion = wire.entitlementVersion
    icon = wire.icon.isEmpty ? nil : wire.icon
    services = wire.services.compactMap { service in
      guard let id = try? ServiceIdentifier(service.id), let version = try? ServiceVersion(service.version)
      else {
        return nil
      }
      let text = service.definition.isEmpty ? nil : String(decoding: service.definition, as: UTF8.self)
      return Service(
        id: id, version: version, type: service.type == .server ? .server : .application,
        definition: text.flatMap { try? ServiceDefinition(jsonText: $0) })
    }
    // The broker has checked them.
    servers = wire.servers.prefix(AppServer.countMax).compactMap { try? AppServer($0) }
    state =
      switch wire.state {
      case .running: .running
      case .suspended: .suspended
      case .locked: .locked
      case .hidden: .hidden
      case .notRunning, .UNRECOGNIZED: .notRunning
      }
    (isInFront, isInstalled) = (wire.isInFront, wire.isInstalled)
    traffic = wire.hasTraffic ? Traffic(wire.traffic) : nil
  }

  /// The servers in the order in which to try them, until one connects: by priority, 1 first, and those of one
  /// priority in random order, so that the load is shared. Each call draws another order.
  public func serversToTry() -> [AppServer] {
    var generator = SystemRandomNumberGenerator()
    return serversToTry(using: &generator)
  }

  /// The same with a given source of randomness.
  public func serversToTry(using generator: inout some RandomNumberGenerator) -> [AppServer] {
    AppServer.attemptOrder(servers, using: &generator)
  }
}
