import ArgumentParser
import ServiceBroker
import ServiceWire

struct AppsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "apps",
    abstract: "Says which apps the broker knows, forgets them, and sets who may call whom.",
    subcommands: [ListAppsCommand.self, ForgetAppCommand.self, PolicyCommand.self])
}

struct ListAppsCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "All apps that have enrolled, with the fingerprints of their keys.")

  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() async throws {
    let client = try await broker.administer()
    defer { client.close() }
    let list = AppList(try await client.apps())
    try StandardOutput.write(json ? JSONText.of(list) : list.text)
  }
}

private struct AppList: Encodable {
  struct App: Encodable {
    let appID, name, state, user, keyFingerprint: String
    let isRegistered, isInFront: Bool
    let process: Int32?
  }

  let authority: String
  let apps: [App]

  init(_ list: BrokerClient.AppList) {
    authority = Fingerprint.text(list.authorityFingerprint)
    apps = list.apps.map { app in
      App(
        appID: app.provider.appID, name: app.provider.name, state: app.provider.state.text,
        user: app.activationUser, keyFingerprint: Fingerprint.text(app.keyFingerprint),
        isRegistered: app.isRegistered, isInFront: app.provider.isInFront,
        process: app.process == 0 ? nil : app.process)
    }
  }

  var text: String {
    apps.map { app in
      var words = [app.appID, app.isInFront ? "in front" : app.state]
      if let process = app.process { words.append("process \(process)") }
      if !app.isRegistered { words.append("not registered") }
      return words.joined(separator: ", ")
        + "\n  user \(PrintableText.of(app.user))\n  key  \(app.keyFingerprint)\n"
    }.joined() + "authority \(authority)\n"
  }
}

struct ForgetAppCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "forget",
    abstract: "Ends an app's connections and forgets its key: whoever enrols next with that id is it.")

  @Argument(help: "The app's id.")
  var appID: String

  @OptionGroup var broker: BrokerOptions

  func validate() throws { try checkApplicationID(appID, "APP_ID") }

  func run() async throws {
    let client = try await broker.administer()
    defer { client.close() }
    let appID = appID
    _ = try await client.ask(.administer(.with { $0.forget = appID }))
  }
}

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
      let client = try await broker.administer()
      defer { client.close() }
      let target = appID ?? ""
      _ = try await client.ask(.administer(.with { $0.front = target }))
      return
    }
    let client = try await broker.administer()
    defer { client.close() }
    for app in try await client.apps().apps where app.provider.isInFront {
      try StandardOutput.write(app.provider.appID + "\n")
    }
  }
}
