import ArgumentParser
import ContainerStore

struct RemoveKeyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove", abstract: "Removes a passphrase or key; the last one stays.",
    discussion: """
      Removes the one that --label, --id or --old-… names, else asks for it on the terminal. With a label or an id, its secret is not needed.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var key: KeyOptions
  @OptionGroup var credential: CredentialOptions

  @Option(
    help: ArgumentHelp("Removes the passphrase on the first line of this file.", valueName: "file"),
    completion: .file())
  var oldPassphraseFile: String?

  @Option(
    help: ArgumentHelp("Removes the passphrase that this command of the shell prints.", valueName: "command"),
    completion: .shellCommand("compgen -c"))
  var oldPassphraseCommand: String?

  @Option(
    help: ArgumentHelp("Removes the key in this file.", valueName: "file"), completion: .file())
  var oldKeyFile: String?

  private var places: SecretPlaces {
    SecretPlaces(
      role: .old, passphraseFile: oldPassphraseFile, passphraseCommand: oldPassphraseCommand,
      keyFile: oldKeyFile)
  }

  func validate() throws {
    try places.requireOne()
    if key.isGiven, let option = places.options.first {
      throw ValidationError("Give \(key.id == nil ? "--label" : "--id") or \(option), not both.")
    }
  }

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      if key.isGiven {
        let id = try key.key(of: container).id
        // The key in use stays: nobody has shown yet that another one opens the container.
        guard id != container.openingKey else { throw CommandError(.keyInUse) }
        return try container.removeKey(id: id)
      }
      let old = try places.secret(
        prompt: "Passphrase to remove from \(PrintableText.of(dir))", asksTwice: false)
      let removed = try container.removeKey(try old.credential())
      if removed == 0 { throw ContainerError(.wrongKey, path: oldKeyFile ?? oldPassphraseFile) }
    }
  }
}
