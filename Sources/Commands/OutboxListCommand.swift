import AppKinetics
import ArgumentParser
import ContainerStore
import SecureFiles

struct OutboxListCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists what waits in a container's outbox, oldest first.")

  @Argument(help: "The sender's container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object for each message, on a line of its own.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    var damage: ContainerError?
    let messages = try withContainer(at: dir, secret, mode: .readOnly) {
      try OutboxMessage.all(in: SecureContainer($0), skipping: { damage = damage ?? $0 })
    }
    for message in messages.map({ OutboxDescription($0, state: $0.state == .held ? "held" : nil) }) {
      try StandardOutput.write(json ? JSONText.of(message) : message.text)
    }
    if let damage { throw damage }
  }
}
