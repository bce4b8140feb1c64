import ArgumentParser
import Foundation
import ServiceValues
import ServiceWire

struct ShowServiceCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "show", abstract: "Prints the definition of a service, as JSON, or its servers.")

  @Argument(help: "The service: its id, or the short name of a well-known one.")
  var service: ServiceName

  @Option(help: "This version; else the only one that is offered.")
  var version: String?

  @Option(help: "As this app offers it; else as all do that offer it.")
  var app: String?

  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints the servers behind the service in place of its definition, each with its priority.")
  var servers = false

  @Flag(help: "Prints it on one line, in its canonical form; of servers one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws {
    do {
      _ = (try version.map { try ServiceVersion($0) }, try app.map { try ApplicationID($0) })
    } catch let error as ServicesError {
      throw ValidationError(
        [error.path, error.detail].compactMap { $0.map(PrintableText.of) }.joined(separator: ": ") + ".")
    }
  }

  func run() async throws {
    Interruption.shared.endAtOnce()
    let client = try await broker.attend()
    defer { client.close() }
    let filter = WireFind.with {
      $0.serviceID = service.id.text
      $0.includesContents = true
    }
    let providers = try await client.find(filter)
    if servers { return try writeServers(of: providers) }
    let definition = try definition(among: providers)
    try StandardOutput.write(PrintableText.ofJSON(json ? definition.jsonText : Self.text(definition)) + "\n")
  }

  private struct Server: Encodable {
    let appID: String
    let server: StatedServer

    private enum CodingKeys: CodingKey { case appID }

    func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(appID, forKey: .appID)
      try server.encode(to: encoder)
    }

    var text: String { PrintableText.of("\(server.priority) \(server.name) of \(appID)") + "\n" }
  }

  /// Those of the apps that are meant. Throws `serviceNotFound` when nobody offers the service as one of servers.
  private func writeServers(of providers: [WireProvider]) throws {
    let meant = providers.filter { provider in
      (app ?? provider.appID) == provider.appID
        && provider.services.contains { $0.type == .server && (version ?? $0.version) == $0.version }
    }
    guard !meant.isEmpty else {
      throw ServicesError(.serviceNotFound, detail: "nobody offers \(service.id) as a service of servers")
    }
    let servers = meant.flatMap { provider in
      StatedServer.all(provider).map { Server(appID: provider.appID, server: $0) }
    }
    try StandardOutput.write(json ? JSONText.of(servers) : servers.map(\.text).joined())
  }

  /// The one definition that is asked for. Throws `serviceNotFound` when nobody has one, and `versionNotFound` with all that there are when
  /// several or none of them are meant.
  private func definition(among providers: [WireProvider]) throws -> ServiceDefinition {
    var all: [String] = []
    var meant: Set<ServiceDefinition> = []
    for provider in providers {
      for offered in provider.services where !offered.definition.isEmpty {
        all.append("\(offered.version) of \(provider.appID)")
        guard version ?? offered.version == offered.version, app ?? provider.appID == provider.appID else {
          continue
        }
        meant.insert(try ServiceDefinition(jsonText: String(decoding: offered.definition, as: UTF8.self)))
      }
    }
    if meant.count == 1 { return meant.first! }
    guard !all.isEmpty else {
      throw ServicesError(
        .serviceNotFound, detail: "nobody offers \(service.id), or only without a definition")
    }
    throw ServicesError(
      .versionNotFound,
      detail: "say with --version or --app which of: \(all.sorted().joined(separator: "; "))")
  }

  /// With a line for each member.
  private static func text(_ definition: ServiceDefinition) throws -> String {
    let value = try JSONSerialization.jsonObject(with: Data(definition.jsonText.utf8))
    let data = try JSONSerialization.data(
      withJSONObject: value, options: [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes])
    return String(decoding: data, as: UTF8.self)
  }
}
