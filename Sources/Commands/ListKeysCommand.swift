import ArgumentParser
import ContainerStore

struct ListKeysCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "The passphrases and keys that open a container: id, kind, cost, label.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    Interruption.shared.endAtOnce()
    let secret = try credential.secret(for: dir)
    let list = try withContainer(at: dir, secret, mode: .readOnly, findings: .none) { container in
      KeyList(
        keys: try container.keys().map { KeyDescription($0, isUsed: $0.id == container.openingKey) })
    }
    try StandardOutput.write(json ? JSONText.of(list) : list.text)
  }
}

private struct KeyList: Encodable {
  let keys: [KeyDescription]

  var text: String {
    let kindWidth = keys.map(\.kind.utf8.count).max() ?? 0
    return keys.map { key in
      let kind = key.kind + String(repeating: " ", count: kindWidth - key.kind.utf8.count)
      let label = key.label.map { "  " + PrintableText.of($0) } ?? ""
      return "\(key.id)  \(kind)\(label)\(key.isUsed == true ? "  (the one in use)" : "")\n"
    }.joined()
  }
}

/// A passphrase or key of a container.
struct KeyDescription: Encodable {
  let id: String
  let kind: String
  let label: String?
  /// Of the password hash; nil for a raw key.
  let passes, memoryKiB: UInt32?
  /// Whether the container was opened with it, where that is known.
  let isUsed: Bool?

  init(_ key: ContainerKey, isUsed: Bool? = nil) {
    id = key.id.hex
    kind = key.kind.rawValue
    label = key.label
    passes = key.passwordHash?.passes
    memoryKiB = key.passwordHash?.memoryKiB
    self.isUsed = isUsed
  }

  var text: String { label.map { "\(kind) (\(PrintableText.of($0)))" } ?? kind }
}
