import ArgumentParser
import LocalTransport
import ServiceBroker

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
