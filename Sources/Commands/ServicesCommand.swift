import ArgumentParser
import LocalTransport
import ServiceBroker
import ServiceValues
import ServiceWire

struct ServicesCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "services", abstract: "Says who offers which services, and asks them.",
    subcommands: [
      ListServicesCommand.self, WatchServicesCommand.self, ShowServiceCommand.self, ServiceCallCommand.self,
    ])
}

struct ServiceFilterOptions: ParsableArguments {
  @Option(help: "Only this service: its id, or the short name of a well-known one.")
  var service: ServiceName?

  @Option(help: "Only this version.")
  var version: String?

  var filter: WireFind {
    .with {
      if let service { $0.serviceID = service.id.text }
      if let version { $0.version = version }
    }
  }

  func validate() throws {
    guard let version else { return }
    do {
      _ = try ServiceVersion(version)
    } catch {
      throw ValidationError("--version \(PrintableText.of(version)): \(error.detail ?? "no version").")
    }
  }
}

struct ListServicesCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Services with their versions, and who offers them.")

  @OptionGroup var options: ServiceFilterOptions
  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  func run() async throws {
    Interruption.shared.endAtOnce()
    let client = try await broker.attend()
    defer { client.close() }
    let services = try await client.find(options.filter).flatMap(OfferedService.all).sorted()
    try StandardOutput.write(json ? JSONText.of(services) : services.map { $0.text + "\n" }.joined())
  }
}
