public import Foundation
@_exported public import SecureFiles
@_exported public import ServiceValues
import ServiceWire
internal import SodiumPrimitives

/// Who an app is among the others.
public struct Application: Sendable, Hashable {
  /// Its address: what others name to reach it.
  public var id: ApplicationID
  /// For people.
  public var name: String
  /// What it is entitled as; the id unless it says otherwise.
  public var entitlementID: String
  /// The version of the entitlement; 1.0.0.0 unless another one is given.
  public var entitlementVersion: ServiceVersion
  /// PNG, at most 64 KiB.
  public var icon: Data?
  /// The servers behind what the app offers with the type ``ServiceType/server``, in any order; 32 at most.
  /// Whoever finds the app reads them as ``Provider/servers``.
  public var servers: [AppServer]
  /// The user that the app was activated for; the name of the system's user, or the number of one without a name, unless it says otherwise. Apps of different users do not
  /// talk to each other.
  public var activationUser: String

  /// Describes an app. What is nil gets the default that its property names.
  public init(
    id: ApplicationID, name: String, entitlementID: String? = nil, entitlementVersion: ServiceVersion? = nil,
    icon: Data? = nil, servers: [AppServer] = [], activationUser: String? = nil
  ) {
    self.id = id
    self.name = name
    self.entitlementID = entitlementID ?? id.text
    self.entitlementVersion = entitlementVersion ?? .initial
    self.icon = icon
    self.servers = servers
    self.activationUser = activationUser ?? Self.systemUser
  }

  /// The user's name; the number of one who has none.
  private static var systemUser: String {
    let name = NSUserName()
    return name.isEmpty ? "\(geteuid())" : name
  }

  /// Throws `invalidRegistration` for more servers than an app may have.
  func checkServers() throws(ServicesError) {
    guard servers.count <= AppServer.countMax else {
      throw ServicesError(
        .invalidRegistration, path: "servers",
        detail: "there are \(servers.count), and \(AppServer.countMax) are allowed")
    }
  }
}

extension ServiceVersion {
  /// 1.0.0.0
  static var initial: ServiceVersion { WellKnownService.frontRequest.version }
}

/// What an app tells the broker of itself.
public enum ApplicationState: Sendable, Hashable {
  /// The app takes requests.
  case running
  /// Requests wait until it runs; those without files are refused after ``AppServices/Options/unlockTime``.
  case locked
  /// Requests without files are refused, and those with files wait until it runs.
  case suspended
}

/// A preference says who should be in front after a message. The numbers are those that the methods of the greetings have in their names.
public enum ForegroundPreference: Int, Sendable, Hashable, CaseIterable {
  /// Who sends it.
  case me = 0
  /// Who receives it.
  case peer
  /// The message changes nothing about the front.
  case none
}

/// Names a request at both sides: 16 bytes, drawn by the system.
public typealias RequestID = Identifier
