import ArgumentParser
import Foundation
import LocalTransport
import ServiceBroker
import ServiceWire

struct AppsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "apps",
    abstract: "Says which apps the broker knows and starts, forgets them, and sets who may call whom.",
    subcommands: [
      ListAppsCommand.self, ApproveAppCommand.self, InstallAppCommand.self, UninstallAppCommand.self,
      ForgetAppCommand.self,
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
    let isRegistered, isInFront, isDamaged, isProgramDamaged, isApproved: Bool
    /// The sandbox that it enrolled from.
    let origin: String?
    let process: Int32?
    /// The program that starts it, and its arguments.
    let program: [String]?
  }

  let brokerKeyFingerprint: String
  let apps: [App]
  /// They wait for approval.
  let pending: [App]

  init(_ list: BrokerClient.AppList) {
    brokerKeyFingerprint = KeyFingerprint.text(list.brokerFingerprint)
    apps = list.apps.map(Self.app)
    pending = list.pending.map(Self.app)
  }

  private static func app(_ app: WireApp) -> App {
    let (identity, program) = (app.identity, app.program)
    // Approved before it enrolled, maybe.
    let fingerprint = app.hasIdentity ? identity.keyFingerprint : program.keyFingerprint
    return App(
      appID: app.provider.appID, name: app.provider.name, state: app.provider.state.text,
      user: identity.activationUser, keyFingerprint: KeyFingerprint.text(fingerprint),
      isRegistered: app.isRegistered, isInFront: app.provider.isInFront, isDamaged: app.isDamaged,
      isProgramDamaged: app.isProgramDamaged,
      isApproved: !fingerprint.isEmpty && program.keyFingerprint == fingerprint,
      origin: identity.origin.isEmpty ? nil : identity.origin,
      process: app.process == 0 ? nil : app.process,
      program: program.path.isEmpty ? nil : [program.path] + program.arguments)
  }

  var text: String {
    apps.map { app in
      var words = [app.appID, app.isInFront ? "in front" : app.state]
      if let process = app.process { words.append("process \(process)") }
      if !app.isRegistered { words.append("not registered") }
      if !app.isApproved, !app.keyFingerprint.isEmpty { words.append("not approved") }
      if let origin = app.origin { words.append("of \(PrintableText.of(origin))") }
      if app.isDamaged { words.append("its record is damaged: forget it, or restore the broker's file") }
      if app.isProgramDamaged {
        words.append("its program is damaged: install or uninstall it, or restore the broker's file")
      }
      var text = words.joined(separator: ", ") + "\n"
      if !app.keyFingerprint.isEmpty {
        text += "  user \(PrintableText.of(app.user))\n  key  \(app.keyFingerprint)\n"
      }
      if let program = app.program {
        text += "  run  \(program.map(PrintableText.of).joined(separator: " "))\n"
      }
      return text
    }.joined() + pendingText + "broker key \(brokerKeyFingerprint)\n"
  }

  private var pendingText: String {
    pending.map { app in
      var words = ["\(app.appID) waits for approval"]
      if let process = app.process { words.append("process \(process)") }
      if let origin = app.origin { words.append("of \(PrintableText.of(origin))") }
      return words.joined(separator: ", ")
        + "\n  dynamics apps approve \(app.appID) \(app.keyFingerprint)\n"
    }.joined()
  }
}

struct ApproveAppCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "approve",
    abstract: "Lets the app with this key be known by its id, now or when it comes.",
    discussion: """
      Compare the fingerprint with what the app's user sees as its own key (dynamics peers list).
      """)

  @Argument(help: "The app's id.")
  var appID: String

  @Argument(help: "The fingerprint of its key, as one word or in groups.")
  var fingerprint: [String]

  @OptionGroup var broker: BrokerOptions

  func validate() throws {
    try checkApplicationID(appID, "APP_ID")
    _ = try keyFingerprint(fingerprint)
  }

  func run() async throws {
    let approval = try WireApprove.with {
      $0.appID = appID
      $0.keyFingerprint = try keyFingerprint(fingerprint)
    }
    let client = try await broker.administer()
    defer { client.close() }
    let waiting = try await client.apps().pending.filter { $0.provider.appID == appID }
    _ = try await client.ask(.administer(.with { $0.approve = approval }))
    for app in waiting where app.identity.keyFingerprint != approval.keyFingerprint {
      StandardError.write(
        "dynamics: an app that waited under this id has another key, and is refused: "
          + "\(KeyFingerprint.text(app.identity.keyFingerprint))\n")
    }
  }
}

/// Throws `ValidationError` for words that are no fingerprint.
func keyFingerprint(_ words: [String]) throws -> Data {
  guard let bytes = KeyFingerprint.bytes(words.joined()) else {
    throw ValidationError("A fingerprint has \(2 * KeyFingerprint.byteCount) hexadecimal digits.")
  }
  return bytes
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
