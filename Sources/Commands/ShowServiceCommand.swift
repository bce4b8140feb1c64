import ArgumentParser
import Foundation
import ServiceValues
import ServiceWire

struct ShowServiceCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "show", abstract: "Prints the definition of a service, as JSON.")

  @Argument(help: "The service: its id, or the short name of a well-known one.")
  var service: ServiceName

  @Option(help: "This version; else the only one that is offered.")
  var version: String?

  @Option(help: "As this app offers it; else as all do that offer it.")
  var app: String?

  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints it on one line, in its canonical form.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws {
    do {
      _ = (try version.map { try ServiceVersion($0) }, try app.map { try ApplicationID($0) })
    } catch let error as ServicesError {
      throw ValidationError([error.path, error.detail].compactMap(\.self).joined(separator: ": ") + ".")
    }
  }

  func run() async throws {
    Interruption.shared.endAtOnce()
    let client = try await broker.attend()
    defer { client.close() }
    let filter = WireFind.with {
      $0.serviceID = service.id.text
      if let version { $0.version = version }
      if let app { $0.appID = app }
      $0.includesContents = true
    }
    let definition = try Self.definition(of: service.id, among: try await client.find(filter))
    try StandardOutput.write(PrintableText.ofJSON(json ? definition.jsonText : Self.text(definition)) + "\n")
  }

  /// The one definition that the apps have. Throws `serviceNotFound` when there is none, and `versionNotFound` when they have several.
  static func definition(
    of service: ServiceIdentifier, among providers: [WireProvider]
  ) throws -> ServiceDefinition {
    var found: [ServiceDefinition: [String]] = [:]
    for provider in providers {
      for offered in provider.services where offered.id == service.text && !offered.definition.isEmpty {
        let definition = try ServiceDefinition(jsonText: String(decoding: offered.definition, as: UTF8.self))
        found[definition, default: []].append(provider.appID)
      }
    }
    guard let (definition, _) = found.first else {
      throw ServicesError(.serviceNotFound, detail: "nobody offers \(service), or only without a definition")
    }
    guard found.count == 1 else {
      let all = found.map { "\($0.version) of \($1.sorted().joined(separator: ", "))" }.sorted()
      throw ServicesError(
        .versionNotFound, detail: "say with --version or --app which of: \(all.joined(separator: "; "))")
    }
    return definition
  }

  /// With a line for each member.
  private static func text(_ definition: ServiceDefinition) throws -> String {
    let value = try JSONSerialization.jsonObject(with: Data(definition.jsonText.utf8))
    let data = try JSONSerialization.data(
      withJSONObject: value, options: [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes])
    return String(decoding: data, as: UTF8.self)
  }
}
