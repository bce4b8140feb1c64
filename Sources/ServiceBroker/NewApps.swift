import ServiceWire

/// What a broker does with an app id that it does not know (BROKER-PROTOCOL.md, "New ids").
public enum NewApps: Hashable, Sendable {
  /// Takes so many apps of one origin without approval; further ones wait until an administrator approves them.
  case open(Int)
  /// Waits until an administrator approves the app (`dynamics apps approve`).
  case ask
  /// Refuses apps whose keys were not approved before.
  case installed

  var admission: BrokerAdmission {
    switch self {
    case .open(let count): .open(count)
    case .ask: .ask
    case .installed: .installed
    }
  }
}
