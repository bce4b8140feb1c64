import ArgumentParser
import ContainerStore

/// How the container that a command works on is opened.
struct CredentialOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Opens the container with the first line of this file.", valueName: "file"),
    completion: .file())
  var passphraseFile: String?

  @Option(
    help: ArgumentHelp("Opens the container with the 32 bytes of this file.", valueName: "file"),
    completion: .file())
  var keyFile: String?

  @Flag(
    help: ArgumentHelp(
      "Opens a container over which an older copy was put.",
      discussion: "A command that writes to it removes the later state for good."))
  var acceptOlderState = false

  func validate() throws {
    try requireOne("--passphrase-file", passphraseFile, "--key-file", keyFile)
  }

  func secret(for directory: String, asksTwice: Bool = false) throws -> Secret {
    var secret = try readSecret(
      passphraseFile: passphraseFile, keyFile: keyFile, environment: "DYNAMICS_PASSPHRASE",
      prompt: "Passphrase for \(PrintableText.of(directory))", asksTwice: asksTwice)
    secret.acceptsOlderState = acceptOlderState
    return secret
  }
}

/// How the receiver of a delivery is opened.
struct ReceiverCredentialOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Opens the receiver with the first line of this file.", valueName: "file"),
    completion: .file())
  var toPassphraseFile: String?

  @Option(
    help: ArgumentHelp("Opens the receiver with the 32 bytes of this file.", valueName: "file"),
    completion: .file())
  var toKeyFile: String?

  var isGiven: Bool { toPassphraseFile != nil || toKeyFile != nil }

  func validate() throws {
    try requireOne("--to-passphrase-file", toPassphraseFile, "--to-key-file", toKeyFile)
  }

  func secret(for directory: String) throws -> Secret {
    try readSecret(
      passphraseFile: toPassphraseFile, keyFile: toKeyFile, environment: "DYNAMICS_TO_PASSPHRASE",
      prompt: "Passphrase for the receiver \(PrintableText.of(directory))", asksTwice: false)
  }
}

/// A passphrase or key that a container is to get.
struct NewCredentialOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("The new passphrase is the first line of this file.", valueName: "file"),
    completion: .file())
  var newPassphraseFile: String?

  @Option(
    help: ArgumentHelp("The new key is the 32 bytes of this file.", valueName: "file"), completion: .file())
  var newKeyFile: String?

  func validate() throws {
    try requireOne("--new-passphrase-file", newPassphraseFile, "--new-key-file", newKeyFile)
  }

  func secret(for directory: String) throws -> Secret {
    try readSecret(
      passphraseFile: newPassphraseFile, keyFile: newKeyFile, environment: "DYNAMICS_NEW_PASSPHRASE",
      prompt: "New passphrase for \(PrintableText.of(directory))", asksTwice: true)
  }
}

private func requireOne(_ first: String, _ a: String?, _ second: String, _ b: String?) throws {
  if a != nil, b != nil { throw ValidationError("Give \(first) or \(second), not both.") }
}

/// The file that was named, else the environment, else the terminal.
private func readSecret(
  passphraseFile: String?, keyFile: String?, environment: String, prompt: String, asksTwice: Bool
) throws -> Secret {
  if let keyFile { return try SecretInput.keyFile(keyFile) }
  if let passphraseFile { return try SecretInput.passphraseFile(passphraseFile) }
  if let secret = try SecretInput.environment(environment) { return secret }
  if let secret = try SecretInput.terminal(prompt, twice: asksTwice) { return secret }
  throw CommandError(.noPassphrase, detail: "the environment variable is \(environment)")
}
