import ArgumentParser
import ContainerStore

struct ListCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "ls", abstract: "Lists files.",
    discussion: """
      One name a line in bytewise order, with control characters escaped. With -R, paths relative to PATH; folders end in a \
      slash.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "A folder or file in the container.")
  var path: String = "/"

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("R"), .customLong("recursive")], help: "Lists everything below, too.")
  var recursive = false

  @Flag(name: .shortAndLong, help: "Prints kind, permissions, size and date.")
  var long = false

  @Flag(help: "Prints one JSON array.")
  var json = false

  @Flag(
    name: [.customShort("0"), .customLong("null")], help: "Prints exact names, each with a NUL behind it.")
  var null = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if json, long || null { throw ValidationError("--json has everything; leave out --long and --null.") }
  }

  func run() throws {
    Interruption.shared.endAtOnce()
    let secret = try credential.secret(for: dir)
    let files = try withContainer(at: dir, secret, mode: .readOnly) { container -> [ListEntry] in
      let attributes = try container.existing(path)
      guard attributes.kind == .directory else {
        return [ListEntry(path: path, attributes: attributes)]
      }
      return try container.list(path, recursively: recursive).map {
        ListEntry(path: $0.path, attributes: $0.attributes)
      }.sorted(by: <)
    }
    try StandardOutput.write(json ? JSONText.of(files.map(FileDescription.init)) : text(files))
  }

  private func text(_ files: [ListEntry]) -> String {
    let width = long ? files.map { String($0.attributes.size).utf8.count }.max() ?? 0 : 0
    var text = ""
    for file in files {
      if long { text += file.attributes.columns(sizeWidth: width) }
      text += null ? file.path : PrintableText.of(file.path)
      if recursive, file.attributes.kind == .directory { text += "/" }
      text += null ? "\0" : "\n"
    }
    return text
  }
}

/// A line of the list.
private struct ListEntry {
  var path: String
  var attributes: FileAttributes

  /// Bytewise name by name, so that a folder's contents follow it at once.
  static func < (a: ListEntry, b: ListEntry) -> Bool {
    let (slash, lowest) = (UInt8(ascii: "/"), UInt8(0))
    return a.path.utf8.lexicographicallyPrecedes(b.path.utf8) { a, b in
      (a == slash ? lowest : a) < (b == slash ? lowest : b)
    }
  }
}

/// An element of `ls --json`.
private struct FileDescription: Encodable {
  var path: String
  var kind: String
  var size: UInt64
  var created: String
  var modified: String
  var permissions: String
  var id: UInt64

  init(_ file: ListEntry) {
    path = file.path
    kind = file.attributes.kind.name
    size = file.attributes.size
    created = Quantity.timestamp(file.attributes.created)
    modified = Quantity.timestamp(file.attributes.modified)
    permissions = file.attributes.octalPermissions
    id = file.attributes.id
  }
}

extension FileKind {
  var name: String {
    switch self {
    case .file: "file"
    case .directory: "directory"
    case .symbolicLink: "symbolicLink"
    }
  }

  fileprivate var letter: String {
    switch self {
    case .file: "-"
    case .directory: "d"
    case .symbolicLink: "l"
    }
  }
}

extension FileAttributes {
  /// `0640`.
  fileprivate var octalPermissions: String {
    let digits = String(permissions, radix: 8)
    return String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
  }

  /// `-rw-------  1234  2026-11-21T12:00:00Z  `.
  fileprivate func columns(sizeWidth: Int) -> String {
    var bits = kind.letter
    for shift in [6, 3, 0] {
      let three = permissions >> UInt16(shift)
      bits += (three & 4 != 0 ? "r" : "-") + (three & 2 != 0 ? "w" : "-") + (three & 1 != 0 ? "x" : "-")
    }
    let digits = String(size)
    let padding = String(repeating: " ", count: max(0, sizeWidth - digits.utf8.count))
    return "\(bits)  \(padding)\(digits)  \(Quantity.timestamp(modified, withFraction: false))  "
  }
}
