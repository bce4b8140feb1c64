import ArgumentParser
import ContainerStore

struct KeyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "key", abstract: "Lists, adds and removes passphrases and keys, up to eight.",
    subcommands: [
      ListKeysCommand.self, AddKeyCommand.self, LabelKeyCommand.self, RemoveKeyCommand.self,
    ])
}

struct AddKeyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "add", abstract: "Adds a passphrase or key that opens the container too.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var newCredential: NewCredentialOptions

  @Option(help: ArgumentHelp("What the new one is called, up to 63 bytes.", valueName: "text"))
  var label: String?

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      let new = try newCredential.secret(for: dir)
      if new.isSame(as: secret) { throw CommandError(.keyUnchanged) }
      try container.addKey(try new.credential(), label: label)
    }
  }
}

struct ChangePassphraseCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "passwd", abstract: "Replaces the passphrase or key that opens the container by another.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var newCredential: NewCredentialOptions

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      let new = try newCredential.secret(for: dir)
      if new.isSame(as: secret) { throw CommandError(.keyUnchanged) }
      try container.replaceKey(try secret.credential(), with: try new.credential())
    }
  }
}
