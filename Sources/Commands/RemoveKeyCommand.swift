import ArgumentParser
import ContainerStore

struct RemoveKeyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove", abstract: "Removes a passphrase or key; the last one stays.",
    discussion: "Removes the one that --old-… names, else asks for it on the terminal.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Option(
    help: ArgumentHelp("Removes the passphrase on the first line of this file.", valueName: "file"),
    completion: .file())
  var oldPassphraseFile: String?

  @Option(help: ArgumentHelp("Removes the key in this file.", valueName: "file"), completion: .file())
  var oldKeyFile: String?

  func validate() throws {
    if oldPassphraseFile != nil, oldKeyFile != nil {
      throw ValidationError("Give --old-passphrase-file or --old-key-file, not both.")
    }
  }

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      let removed = try container.removeKey(try old().credential())
      if removed == 0 { throw ContainerError(.wrongKey, path: oldKeyFile ?? oldPassphraseFile) }
    }
  }

  private func old() throws -> Secret {
    if let oldKeyFile { return try SecretInput.keyFile(oldKeyFile) }
    if let oldPassphraseFile { return try SecretInput.passphraseFile(oldPassphraseFile) }
    let prompt = "Passphrase to remove from \(PrintableText.of(dir))"
    guard let asked = try SecretInput.terminal(prompt, twice: false) else {
      throw CommandError(
        .noPassphrase, detail: "for the one to remove, --old-passphrase-file FILE or --old-key-file FILE")
    }
    return asked
  }
}
