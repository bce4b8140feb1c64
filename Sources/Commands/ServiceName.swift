import ArgumentParser
import ServiceValues

/// A service on the command line: its id, or the short name of a well-known one.
struct ServiceName: ExpressibleByArgument, Sendable {
  let id: ServiceIdentifier
  /// Nil for a service that is not well known, or is named by its id.
  let known: WellKnownService?

  init?(argument: String) {
    known = WellKnownService(rawValue: argument)
    guard let id = try? known?.definition.serviceID ?? ServiceIdentifier(argument) else { return nil }
    self.id = id
  }
}
