import ArgumentParser
import ContainerStore

struct StatusCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "stat", abstract: "Says everything that is known of files and folders.",
    usage: "dynamics stat [OPTIONS] DIR PATH…\ndynamics stat [OPTIONS] CONTAINER:/path…")

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "The files.")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("L"), .customLong("dereference")], help: "Of a symbolic link, what it leads to.")
  var followsLinks = false

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws { _ = try operands() }

  private func operands() throws -> ContainerOperands { try ContainerOperands(requiringPath: dir, path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    let files = try withContainer(
      at: operands.directory, secret, mode: .readOnly, findings: json ? .json : .text
    ) { container in
      try FoundPaths(operands.paths, asJSON: json) { path in
        let attributes = try container.existing(path, followingLinks: followsLinks)
        let names = try container.extendedAttributes(at: path, followingLinks: followsLinks).keys
        return FileStatus(
          try container.describe(path, as: path, attributes),
          extendedAttributes: names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) })
      }
    }
    try files.print { try json ? JSONText.of($0) : $0.map(\.text).joined(separator: "\n") }
  }
}

/// What `stat` prints: everything that `ls --json` has, and more.
private struct FileStatus: Encodable {
  let file: DescribedFile
  let extendedAttributes: [String]

  init(_ file: DescribedFile, extendedAttributes: [String]) {
    self.file = file
    self.extendedAttributes = extendedAttributes
  }

  private enum CodingKeys: String, CodingKey {
    case changed, extendedAttributes
  }

  func encode(to encoder: any Encoder) throws {
    try FileDescription(file).encode(to: encoder)
    var more = encoder.container(keyedBy: CodingKeys.self)
    try more.encode(Quantity.timestamp(file.attributes.changed), forKey: .changed)
    try more.encode(extendedAttributes, forKey: .extendedAttributes)
  }

  var text: String {
    let attributes = file.attributes
    var rows = [("path", PrintableText.of(file.path)), ("kind", attributes.kind.text)]
    if let target = file.target { rows.append(("target", PrintableText.of(target))) }
    rows += [
      ("size", "\(attributes.size) (\(Quantity.bytes(attributes.size)))"),
      ("permissions", "\(attributes.octalPermissions) (\(attributes.symbolicPermissions))"),
      ("links", String(attributes.linkCount)), ("number", String(attributes.id)),
      ("created", Quantity.timestamp(attributes.created)),
      ("modified", Quantity.timestamp(attributes.modified)),
      ("changed", Quantity.timestamp(attributes.changed)),
    ]
    rows += extendedAttributes.map { ("attribute", PrintableText.of($0)) }
    let width = 13
    return rows.map { name, value in
      name + String(repeating: " ", count: width - name.utf8.count) + value + "\n"
    }.joined()
  }
}

extension FileKind {
  fileprivate var text: String {
    switch self {
    case .file: "file"
    case .directory: "folder"
    case .symbolicLink: "symbolic link"
    }
  }
}
