import ArgumentParser
import ServiceWire

struct InstallAppCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "install",
    abstract: "Names the program that the broker starts when somebody calls an app that does not run.",
    usage: "dynamics apps install <app-id> [<options>] -- <program> [<argument> ...]",
    discussion: """
      The program runs as this user, in a session of its own. An app cannot name one itself. A program that was named before is replaced.
      """)

  @Argument(help: "The app's id.")
  var appID: String

  @Argument(
    parsing: .postTerminator,
    help: ArgumentHelp("The program's absolute path, and its arguments.", valueName: "program"))
  var program: [String] = []

  @Option(
    help: ArgumentHelp("Approves the key with this fingerprint for the app, too.", valueName: "fingerprint"))
  var key: String?

  @OptionGroup var broker: BrokerOptions

  func validate() throws {
    try checkApplicationID(appID, "APP_ID")
    guard program.first?.utf8.first == UInt8(ascii: "/") else {
      throw ValidationError("Behind -- there is an absolute path of a program, then its arguments.")
    }
    if let key { _ = try keyFingerprint([key]) }
  }

  func run() async throws {
    let install = try WireInstall.with {
      $0.appID = appID
      $0.program.path = program[0]
      $0.program.arguments = Array(program.dropFirst())
      if let key { $0.program.keyFingerprint = try keyFingerprint([key]) }
    }
    try await broker.administer(.with { $0.install = install })
  }
}
