/// Where a connection to the broker comes from, as far as the kernel tells (BROKER-PROTOCOL.md,
/// "Origins"). Limits for apps that nobody has approved hold for each origin.
package enum BrokerOrigin: Hashable, Sendable {
  /// A process without confinement.
  case plain
  /// A sandbox: its security label, or the name of its control group.
  case sandbox(String)

  /// Empty for a plain process.
  package var label: String {
    switch self {
    case .plain: ""
    case .sandbox(let label): label
    }
  }

  package init(label: String) { self = label.isEmpty ? .plain : .sandbox(label) }
}

/// What a broker does with an app id that it does not know.
package enum BrokerAdmission: Hashable, Sendable {
  /// Takes so many of an origin, and asks for further ones.
  case open(Int)
  /// Waits until an administrator approves the app.
  case ask
  /// Refuses all whose key was not approved before.
  case installed
}
