import ArgumentParser
import ContainerStore

struct ListCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "ls", abstract: "Lists files.",
    discussion: """
      One name a line in bytewise order, with control characters escaped. With -R, paths relative to PATH; folders end in a \
      slash.
      """)

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "A folder or file in the container. (default: /)")
  var path: String?

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("R"), .customLong("recursive")], help: "Lists everything below, too.")
  var recursive = false

  @Flag(name: .shortAndLong, help: "Prints kind, permissions, number of links, size, date and target.")
  var long = false

  @Flag(name: [.customShort("h"), .long], help: "Prints sizes as 1.5KiB.")
  var human = false

  @Flag(name: [.customShort("i"), .customLong("inode")], help: "Prints the file's number in front.")
  var inode = false

  @Flag(name: .shortAndLong, help: "Describes PATH itself, not what is in it.")
  var directory = false

  @Flag(name: [.customShort("t")], help: "Sorts by date of modification, the newest first.")
  var byDate = false

  @Flag(name: [.customShort("S")], help: "Sorts by size, the largest first.")
  var bySize = false

  @Flag(name: [.customShort("r"), .customLong("reverse")], help: "Sorts the other way round.")
  var reverse = false

  @Flag(name: .shortAndLong, help: "There are no hidden names: all are listed anyway.")
  var all = false

  @Flag(help: "Prints one JSON array.")
  var json = false

  @Flag(
    name: [.customShort("0"), .customLong("null")], help: "Prints exact names, each with a NUL behind it.")
  var null = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if json, long || null { throw ValidationError("--json has everything; leave out --long and --null.") }
    if recursive, byDate || bySize || reverse {
      throw ValidationError("With -R, the order is that of names.")
    }
    if byDate, bySize { throw ValidationError("Give -t or -S, not both.") }
    if recursive, directory { throw ValidationError("Give -R or -d, not both.") }
    _ = try operands()
  }

  private func operands() throws -> ContainerOperands { try ContainerOperands(dir, optional: path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    let damage = DamageReport(asJSON: json)
    let files = try withContainer(
      at: operands.directory, secret, mode: .readOnly, findings: json ? .json : .text
    ) { container in
      try self.files(at: operands.path, in: container, damage: damage)
    }
    try StandardOutput.write(json ? JSONText.of(files.map(FileDescription.init)) : text(files))
    try damage.finish()
  }

  private func files(at path: String, in container: Container, damage: DamageReport) throws -> [DescribedFile]
  {
    // As ls(1): a link is shown where everything is shown, and else is what it leads to.
    let itself = try container.existing(path, followingLinks: PathText.endsWithSlash(path))
    let leadsToDirectory = try container.isDirectory(path)
    guard !directory, leadsToDirectory, itself.kind == .directory || !long else {
      return [try container.describe(path, as: path, itself)]
    }
    var files = try container.describedList(path, recursively: recursive, damage: damage)
    if byDate { files = files.sortedStably { $0.attributes.modified > $1.attributes.modified } }
    if bySize { files = files.sortedStably { $0.attributes.size > $1.attributes.size } }
    return reverse ? files.reversed() : files
  }

  private func text(_ files: [DescribedFile]) -> String {
    let numbers = Column(files.map { String($0.attributes.id) })
    let links = Column(files.map { String($0.attributes.linkCount) })
    let sizes = Column(
      files.map { human ? Quantity.compactBytes($0.attributes.size) : String($0.attributes.size) })
    var text = ""
    for (row, file) in files.enumerated() {
      if inode { text += numbers[row] + "  " }
      if long {
        text += file.attributes.symbolicPermissions + "  " + links[row] + "  " + sizes[row] + "  "
        text += Quantity.timestamp(file.attributes.modified, withFraction: false) + "  "
      }
      text += null ? file.path : PrintableText.of(file.path)
      if recursive, file.attributes.kind == .directory { text += "/" }
      if long, let target = file.target { text += " -> " + (null ? target : PrintableText.of(target)) }
      text += null ? "\0" : "\n"
    }
    return text
  }
}

/// Cells of one width, set against the right.
struct Column {
  private let cells: [String]
  private let width: Int

  init(_ cells: [String]) {
    self.cells = cells
    width = cells.map(\.utf8.count).max() ?? 0
  }

  subscript(row: Int) -> String {
    String(repeating: " ", count: width - cells[row].utf8.count) + cells[row]
  }
}

extension Array {
  /// Elements of which neither precedes the other keep their order.
  fileprivate func sortedStably(by precedes: (Element, Element) -> Bool) -> [Element] {
    enumerated().sorted { a, b in
      if precedes(a.element, b.element) { return true }
      return !precedes(b.element, a.element) && a.offset < b.offset
    }.map(\.element)
  }
}
