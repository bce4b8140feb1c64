import ArgumentParser
import ContainerStore

/// How the container that a command works on is opened.
struct CredentialOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Opens the container with the first line of this file.", valueName: "file"),
    completion: .file())
  var passphraseFile: String?

  @Option(
    help: ArgumentHelp(
      "Opens the container with the first line that this command of the shell prints.", valueName: "command"),
    completion: .shellCommand("compgen -c"))
  var passphraseCommand: String?

  @Option(
    help: ArgumentHelp("Opens the container with the 32 bytes of this file.", valueName: "file"),
    completion: .file())
  var keyFile: String?

  @Flag(
    help: ArgumentHelp(
      "Opens a container over which an older copy was put.",
      discussion: "A command that writes to it removes the later state for good."))
  var acceptOlderState = false

  private var places: SecretPlaces {
    SecretPlaces(
      role: .container, passphraseFile: passphraseFile, passphraseCommand: passphraseCommand, keyFile: keyFile
    )
  }

  func validate() throws { try places.requireOne() }

  func secret(for directory: String, asksTwice: Bool = false) throws -> Secret {
    var secret = try places.secret(
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
    help: ArgumentHelp(
      "Opens the receiver with the first line that this command of the shell prints.", valueName: "command"),
    completion: .shellCommand("compgen -c"))
  var toPassphraseCommand: String?

  @Option(
    help: ArgumentHelp("Opens the receiver with the 32 bytes of this file.", valueName: "file"),
    completion: .file())
  var toKeyFile: String?

  private var places: SecretPlaces {
    SecretPlaces(
      role: .receiver, passphraseFile: toPassphraseFile, passphraseCommand: toPassphraseCommand,
      keyFile: toKeyFile)
  }

  var isGiven: Bool { !places.options.isEmpty }

  func validate() throws { try places.requireOne() }

  func secret(for directory: String) throws -> Secret {
    try places.secret(
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
    help: ArgumentHelp(
      "The new passphrase is the first line that this command of the shell prints.", valueName: "command"),
    completion: .shellCommand("compgen -c"))
  var newPassphraseCommand: String?

  @Option(
    help: ArgumentHelp("The new key is the 32 bytes of this file.", valueName: "file"), completion: .file())
  var newKeyFile: String?

  private var places: SecretPlaces {
    SecretPlaces(
      role: .new, passphraseFile: newPassphraseFile, passphraseCommand: newPassphraseCommand,
      keyFile: newKeyFile)
  }

  func validate() throws { try places.requireOne() }

  func secret(for directory: String) throws -> Secret {
    try places.secret(prompt: "New passphrase for \(PrintableText.of(directory))", asksTwice: true)
  }
}
