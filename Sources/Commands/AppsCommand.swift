import ArgumentParser
import ServiceBroker
import ServiceWire

struct AppsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "apps",
    abstract: "Says which apps the broker knows and starts, forgets them, and sets who may call whom.",
    subcommands: [
      ListAppsCommand.self, InstallAppCommand.self, UninstallAppCommand.self, ForgetAppCommand.self,
      PolicyCommand.self,
    ])
}

struct ListAppsCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "All apps that have enrolled or are installed, with the fingerprints of their keys.")

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
    let isRegistered, isInFront, isDamaged: Bool
    let process: Int32?
    /// The program that starts it, and its arguments.
    let program: [String]?
  }

  let brokerKeyFingerprint: String
  let apps: [App]

  init(_ list: BrokerClient.AppList) {
    brokerKeyFingerprint = KeyFingerprint.text(list.brokerFingerprint)
    apps = list.apps.map { app in
      App(
        appID: app.provider.appID, name: app.provider.name, state: app.provider.state.text,
        user: app.activationUser, keyFingerprint: KeyFingerprint.text(app.keyFingerprint),
        isRegistered: app.isRegistered, isInFront: app.provider.isInFront,
        isDamaged: app.isDamaged, process: app.process == 0 ? nil : app.process,
        program: app.hasProgram ? [app.program.path] + app.program.arguments : nil)
    }
  }

  var text: String {
    apps.map { app in
      var words = [app.appID, app.isInFront ? "in front" : app.state]
      if let process = app.process { words.append("process \(process)") }
      if !app.isRegistered { words.append("not registered") }
      if app.isDamaged { words.append("its record is damaged: forget it, or restore the broker's file") }
      var text = words.joined(separator: ", ") + "\n"
      if !app.keyFingerprint.isEmpty {
        text += "  user \(PrintableText.of(app.user))\n  key  \(app.keyFingerprint)\n"
      }
      if let program = app.program {
        text += "  run  \(program.map(PrintableText.of).joined(separator: " "))\n"
      }
      return text
    }.joined() + "broker key \(brokerKeyFingerprint)\n"
  }
}

struct UninstallAppCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "uninstall", abstract: "The broker does not start this app any more.")

  @Argument(help: "The app's id.")
  var appID: String

  @OptionGroup var broker: BrokerOptions

  func validate() throws { try checkApplicationID(appID, "APP_ID") }

  func run() async throws {
    let appID = appID
    try await broker.administer(.with { $0.uninstall = appID })
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
    let appID = appID
    try await broker.administer(.with { $0.forget = appID })
  }
}
