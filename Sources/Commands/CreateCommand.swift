import ArgumentParser
import ContainerStore

struct CreateCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "create", abstract: "Makes a new, empty container.")

  @Argument(help: "The directory to make.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Option(help: ArgumentHelp("What the passphrase or key is called.", valueName: "text"))
  var label: String?

  func run() throws {
    // Before anybody is asked for a passphrase.
    if try NativeKind(at: dir) != .missing { try Container.requireUnfinished(at: dir) }
    let secret = try credential.secret(for: dir, asksTwice: true)
    try Container.create(at: dir, credential: try secret.credential(), label: label).close()
  }
}
