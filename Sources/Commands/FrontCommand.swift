import ArgumentParser
import LocalTransport
import ServiceBroker
import ServiceWire

struct FrontCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "front", abstract: "Says which app is in front, or brings one there.")

  @Argument(help: "The app that comes to front.")
  var appID: String?

  @Flag(help: "Nobody is in front.")
  var none = false

  @OptionGroup var broker: BrokerOptions

  func validate() throws {
    if none, appID != nil { throw ValidationError("An app id and --none contradict each other.") }
    try appID.map { try checkApplicationID($0, "APP_ID") }
  }

  func run() async throws {
    if none || appID != nil {
      let target = appID ?? ""
      try await broker.administer(.with { $0.front = target })
      return
    }
    let client = try await broker.administer()
    defer { client.close() }
    for app in try await client.apps().apps where app.provider.isInFront {
      try StandardOutput.write(app.provider.appID + "\n")
    }
  }
}
