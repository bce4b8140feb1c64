import ServiceValues
import ServiceWire

/// A version of a service that one app offers, as `services` prints it.
struct OfferedService: Encodable, Comparable {
  let service, version, type, appID, name, state: String
  let isInFront: Bool
  /// Those behind a service of the type server, in the order of their priorities; nil for others.
  let servers: [StatedServer]?

  static func all(_ provider: WireProvider) -> [OfferedService] {
    let servers = StatedServer.all(provider)
    return provider.services.map { service in
      OfferedService(
        service: service.id, version: service.version,
        type: service.type == .server ? "server" : "application", appID: provider.appID, name: provider.name,
        state: provider.state.text, isInFront: provider.isInFront,
        servers: service.type == .server ? servers : nil)
    }
  }

  static func < (left: Self, right: Self) -> Bool {
    (left.service, left.version, left.appID) < (right.service, right.version, right.appID)
  }

  var text: String {
    let names = (servers ?? []).map(\.name).joined(separator: ", ")
    return PrintableText.of(
      "\(service) \(version) \(appID) (\(isInFront ? "in front" : state))"
        + (names.isEmpty ? "" : " at \(names)"))
  }
}

/// A server for which an app stands.
struct StatedServer: Encodable, Equatable {
  let host: String
  let port, priority: Int
  /// The address is host and port, with a colon between them.
  let name: String

  private enum CodingKeys: CodingKey { case host, port, priority }

  /// In the order of their priorities, and of one priority as the app states them.
  static func all(_ provider: WireProvider) -> [StatedServer] {
    let servers = provider.servers.compactMap { try? AppServer($0) }
    return servers.enumerated().sorted { ($0.element.priority, $0.offset) < ($1.element.priority, $1.offset) }
      .map { StatedServer($0.element) }
  }

  private init(_ server: AppServer) {
    host = server.host
    port = server.port
    priority = server.priority
    name = "\(server)"
  }
}
