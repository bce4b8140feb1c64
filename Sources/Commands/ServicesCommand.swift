import ArgumentParser
import ServiceBroker
import ServiceValues
import ServiceWire

struct ServicesCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "services", abstract: "Says who offers which services, and asks them.",
    subcommands: [ListServicesCommand.self, WatchServicesCommand.self, ServiceCallCommand.self])
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

struct WatchServicesCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "watch", abstract: "What is offered now, and then each change, until a signal ends it.")

  @OptionGroup var options: ServiceFilterOptions
  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints one JSON object for each line.")
  var json = false

  var reportsJSON: Bool { json }

  func run() async throws {
    Interruption.shared.endAtOnce()
    let client = try await broker.attend()
    for try await told in client.watch(options.filter) {
      let (present, gone) =
        switch told {
        case .list(let providers, isLast: _): (providers, [String]())
        case .changed(let present, let gone): (present, gone)
        }
      let change = ServiceChange(offered: present.flatMap(OfferedService.all).sorted(), gone: gone)
      // Something else than services changed. The first list is told also when it is empty.
      if case .changed = told, change.offered.isEmpty, change.gone.isEmpty { continue }
      try StandardOutput.write(json ? JSONText.of(change) : change.text)
    }
  }
}

private struct ServiceChange: Encodable {
  let offered: [OfferedService]
  let gone: [String]

  var text: String {
    offered.map { "+ \($0.text)\n" }.joined() + gone.map { "- \(PrintableText.of($0))\n" }.joined()
  }
}

private struct OfferedService: Encodable, Comparable {
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
