import ArgumentParser
import ContainerStore

/// Names one key of a container by what `key list` shows of it.
struct KeyOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The key with this label.", valueName: "text"))
  var label: String?

  @Option(help: ArgumentHelp("The key with this id.", valueName: "id"))
  var id: String?

  var isGiven: Bool { label != nil || id != nil }

  func validate() throws {
    if label != nil, id != nil { throw ValidationError("Give --label or --id, not both.") }
  }

  func key(of container: Container) throws -> ContainerKey {
    let keys = try container.keys().filter { key in
      if let id { return key.id.hex == id.lowercased() }
      return key.label.map { $0.utf8.elementsEqual(label!.utf8) } ?? false  // one of the two is given
    }
    guard let key = keys.first else { throw CommandError(.noSuchKey, detail: id ?? label) }
    guard keys.count == 1 else {
      throw CommandError(.noSuchKey, detail: "\(keys.count) keys have this label")
    }
    return key
  }
}

struct LabelKeyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "label", abstract: "Gives a passphrase or key another label, or none.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The new label, up to 63 bytes; nothing: none.")
  var newLabel: String?

  @OptionGroup var key: KeyOptions
  @OptionGroup var credential: CredentialOptions

  func validate() throws {
    guard key.isGiven else {
      throw ValidationError("Say which one: --label or --id, as key list shows them.")
    }
  }

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      try container.setLabel(newLabel, ofKey: try key.key(of: container).id)
    }
  }
}
