import ContainerStore

/// A file as lists show it.
struct DescribedFile {
  /// As it is printed.
  var path: String
  var attributes: FileAttributes
  /// Where a symbolic link leads.
  var target: String?

  /// Bytewise name by name, so that a folder's contents follow it at once.
  static func byPath(_ a: DescribedFile, _ b: DescribedFile) -> Bool { PathText.precedes(a.path, b.path) }
}

extension Container {
  /// The file at `path` with what is known of it, to be printed as `name`.
  func describe(_ path: String, as name: String, _ attributes: FileAttributes) throws -> DescribedFile {
    DescribedFile(
      path: name, attributes: attributes,
      target: attributes.kind == .symbolicLink ? try destinationOfSymbolicLink(path) : nil)
  }

  /// A directory's contents in order; with `recursively`, everything below, folders before their contents. Paths are relative to it.
  /// What is damaged is reported and left out.
  func describedList(_ path: String, recursively: Bool, damage: DamageReport) throws -> [DescribedFile] {
    let files = try readableTree(at: path, recursively: recursively, skipping: damage.add)
    return try files.map {
      try describe(PathText.joined(path, $0.path), as: $0.path, $0.attributes)
    }.sorted(by: DescribedFile.byPath)
  }

  /// The file at `path` and, of a directory, everything below, folders before their contents; paths begin with `path`. What is damaged
  /// is reported and left out.
  func describedTree(_ path: String, damage: DamageReport) throws -> [DescribedFile] {
    let top = try describe(path, as: path, existing(path))
    guard top.attributes.kind == .directory else { return [top] }
    return try [top]
      + describedList(path, recursively: true, damage: damage).map {
        DescribedFile(path: PathText.joined(path, $0.path), attributes: $0.attributes, target: $0.target)
      }
  }
}

/// An element of `ls --json` and `find --json`.
struct FileDescription: Encodable {
  var path: String
  var kind: String
  var size: UInt64
  var created: String
  var modified: String
  var permissions: String
  var id: UInt64
  var linkCount: Int
  var target: String?

  init(_ file: DescribedFile) {
    path = file.path
    kind = file.attributes.kind.name
    size = file.attributes.size
    created = Quantity.timestamp(file.attributes.created)
    modified = Quantity.timestamp(file.attributes.modified)
    permissions = file.attributes.octalPermissions
    id = file.attributes.id
    linkCount = file.attributes.linkCount
    target = file.target
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

  var letter: String {
    switch self {
    case .file: "-"
    case .directory: "d"
    case .symbolicLink: "l"
    }
  }
}

extension FileAttributes {
  /// `0640`.
  var octalPermissions: String {
    let digits = String(permissions, radix: 8)
    return String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
  }

  /// `-rw-r-----`, with `s`, `S`, `t` and `T` for the special bits as ls(1) has them.
  var symbolicPermissions: String {
    var text = kind.letter
    for (shift, special, letter) in [(6, 0o4000, "s"), (3, 0o2000, "s"), (0, 0o1000, "t")] {
      let three = Int(permissions) >> shift
      text += (three & 4 != 0 ? "r" : "-") + (three & 2 != 0 ? "w" : "-")
      let isExecutable = three & 1 != 0
      if Int(permissions) & special != 0 {
        text += isExecutable ? letter : letter.uppercased()
      } else {
        text += isExecutable ? "x" : "-"
      }
    }
    return text
  }
}
