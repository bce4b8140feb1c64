import ArgumentParser
import ContainerStore

struct TreeCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tree", abstract: "Draws what is below a folder.",
    usage: "dynamics tree [OPTIONS] DIR [PATH]\ndynamics tree [OPTIONS] CONTAINER:/path")

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "A folder in the container. (default: /)")
  var path: String?

  @OptionGroup var credential: CredentialOptions

  @Option(
    name: [.customShort("L"), .customLong("level")],
    help: ArgumentHelp("Draws only so many levels.", valueName: "n"))
  var depthMax: Int?

  @Flag(name: [.customShort("d"), .customLong("directories")], help: "Draws folders only.")
  var directoriesOnly = false

  @Flag(name: [.customShort("s"), .customLong("size")], help: "Prints the sizes of files in bytes.")
  var size = false

  @Flag(help: "Prints the sizes of files as 1.5KiB.")
  var human = false

  @Flag(name: .shortAndLong, help: "There are no hidden names: all are drawn anyway.")
  var all = false

  func validate() throws {
    if let depthMax, depthMax < 1 { throw ValidationError("-L takes 1 or more.") }
    _ = try operands()
  }

  private func operands() throws -> ContainerOperands { try ContainerOperands(dir, optional: path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    let damage = DamageReport()
    let files = try withContainer(at: operands.directory, secret, mode: .readOnly) { container in
      guard try container.existing(operands.path, followingLinks: true).kind == .directory else {
        throw ContainerError(.notADirectory, path: operands.path)
      }
      return try container.describedList(operands.path, recursively: true, damage: damage)
    }
    try StandardOutput.write(text(operands.path, files))
    try damage.finish()
  }

  private func text(_ top: String, _ files: [DescribedFile]) -> String {
    let shown = files.filter {
      PathText.depth($0.path) < depthMax ?? .max && (!directoriesOnly || $0.attributes.kind == .directory)
    }
    var lines: [String] = []
    // From the end: whether a name is the last of its folder is then known when it comes.
    var hasLater: [Bool] = []
    for file in shown.reversed() {
      let depth = PathText.depth(file.path)
      hasLater += [Bool](repeating: false, count: max(0, depth + 1 - hasLater.count))
      hasLater.removeLast(hasLater.count - depth - 1)
      let stems = hasLater[..<depth].map { $0 ? "│   " : "    " }.joined()
      lines.append(stems + (hasLater[depth] ? "├── " : "└── ") + label(file) + "\n")
      hasLater[depth] = true
    }
    let folderCount = shown.count { $0.attributes.kind == .directory }
    let counts =
      [Quantity.count(folderCount, "folder")]
      + (directoriesOnly ? [] : [Quantity.count(shown.count - folderCount, "file")])
    return PrintableText.of(top) + "\n" + lines.reversed().joined() + "\n" + counts.joined(separator: ", ")
      + "\n"
  }

  private func label(_ file: DescribedFile) -> String {
    var label = PrintableText.of(PathText.lastName(file.path))
    if let target = file.target { label += " -> " + PrintableText.of(target) }
    guard size || human, file.attributes.kind != .directory else { return label }
    let size = file.attributes.size
    return "[" + (human ? Quantity.compactBytes(size) : String(size)) + "]  " + label
  }
}
