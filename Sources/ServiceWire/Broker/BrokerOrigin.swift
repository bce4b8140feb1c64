import SodiumPrimitives

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

  /// What apps are told of it: 0 for a plain process, else a number that says nothing of the label to who does not have the secret.
  func number(_ secret: [UInt8]) -> UInt64 {
    guard self != .plain else { return 0 }
    let hash = secret.withUnsafeBytes { KeyedHash.compute(count: 16, key: $0, data: Array(label.utf8)) }
    return max(1, hash.prefix(8).reduce(0) { $0 << 8 | UInt64($1) })
  }
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
