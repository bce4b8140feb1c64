import ServiceWire

/// A version of a service that one app offers, as `services` prints it.
struct OfferedService: Encodable, Comparable {
  let service, version, type, appID, name, state: String
  let isInFront: Bool

  static func all(_ provider: WireProvider) -> [OfferedService] {
    provider.services.map { service in
      OfferedService(
        service: service.id, version: service.version,
        type: service.type == .server ? "server" : "application", appID: provider.appID, name: provider.name,
        state: provider.state.text, isInFront: provider.isInFront)
    }
  }

  static func < (left: Self, right: Self) -> Bool {
    (left.service, left.version, left.appID) < (right.service, right.version, right.appID)
  }

  var text: String { PrintableText.of("\(service) \(version) \(appID) (\(isInFront ? "in front" : state))") }
}
