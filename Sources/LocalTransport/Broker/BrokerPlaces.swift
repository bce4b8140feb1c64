import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Where a broker is when nobody says otherwise (BROKER-PROTOCOL.md, "The socket").
package enum BrokerPlaces {
  /// `OPENDYNAMICS_BROKER`, else `opendynamics/broker` in `XDG_RUNTIME_DIR`, else `/tmp/opendynamics-<uid>/broker`.
  package static func socketPath(
    _ environment: [String: String] = ProcessInfo.processInfo.environment
  ) -> String {
    if let path = set(environment["OPENDYNAMICS_BROKER"]) { return path }
    if let directory = absolute(environment["XDG_RUNTIME_DIR"]) { return directory + "/opendynamics/broker" }
    return "/tmp/opendynamics-\(geteuid())/broker"
  }

  /// `OPENDYNAMICS_BROKER_STATE`, else `opendynamics/broker` in `XDG_STATE_HOME`, else in `~/.local/state`.
  package static func stateDirectory(
    _ environment: [String: String] = ProcessInfo.processInfo.environment
  ) -> String {
    if let path = set(environment["OPENDYNAMICS_BROKER_STATE"]) { return path }
    if let directory = absolute(environment["XDG_STATE_HOME"]) { return directory + "/opendynamics/broker" }
    return (absolute(environment["HOME"]) ?? NSHomeDirectory()) + "/.local/state/opendynamics/broker"
  }

  /// An empty variable counts as none.
  private static func set(_ value: String?) -> String? { value == "" ? nil : value }

  /// A relative path, which would lead elsewhere from each working directory, counts as none too.
  private static func absolute(_ value: String?) -> String? { value?.hasPrefix("/") == true ? value : nil }
}
