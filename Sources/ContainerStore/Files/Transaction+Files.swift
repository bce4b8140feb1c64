import EncryptedFile

extension Transaction {
  /// Gives a name to a new file. A file that had the name before is dropped.
  func replace(_ parent: UInt64, _ name: FileName, with file: UInt64, kind: FileKind) throws {
    if let existing = try entry(parent, name) { try dropFile(existing.file) }
    try link(parent, name, to: file, kind: kind)
  }

  /// Gives a file one more name, in the place of what has it.
  func addName(of file: UInt64, _ parent: UInt64, _ name: FileName) throws {
    var inode = try inode(file)
    guard inode.linkCount < .max else { throw ContainerError(.invalidArgument, detail: "too many names") }
    inode.linkCount += 1
    inode.changed = now
    put(file, inode)
    try replace(parent, name, with: file, kind: inode.kind)
  }

  /// Drops a directory and everything below it.
  func dropSubtree(_ directory: UInt64) throws {
    var items: [DirectoryEntry] = []
    try forEachDirectory(in: directory) { parent, entries in
      for (name, entry) in entries {
        delete(.entry(parent: parent, name: name))
        items.append(entry)
      }
    }
    // Drop the files in the order of their records in the tables.
    for item in items.sorted(by: { $0.file < $1.file }) {
      if item.kind == .directory { try dropDirectory(item.file) } else { try dropFile(item.file) }
    }
    try dropDirectory(directory)
  }

  /// The directory at the path `names`. Missing directories on the path are created: `attributes`
  /// apply to each of them, `permissions` only to the last.
  func directory(
    _ names: some Collection<FileName>, path: String, permissions: UInt16 = 0o700,
    attributes: AttributeChanges = AttributeChanges()
  ) throws -> UInt64 {
    var current = rootFileID
    for (i, name) in names.enumerated() {
      if let entry = try entry(current, name) {
        guard entry.kind == .directory else { throw ContainerError(.notADirectory, path: path) }
        current = entry.file
      } else {
        let id = takeFileID()
        try makeDirectory(
          current, name, id: id, permissions: i == names.count - 1 ? permissions : 0o700)
        try apply(attributes, to: id)
        current = id
      }
    }
    return current
  }

  func apply(_ changes: AttributeChanges, to file: UInt64) throws {
    guard !changes.isEmpty else { return }
    var inode = try inode(file)
    if let created = changes.created { inode.created = created }
    if let modified = changes.modified { inode.modified = modified }
    if let permissions = changes.permissions { inode.permissions = permissions & 0o7777 }
    inode.changed = now
    put(file, inode)
    for (name, value) in changes.extended { putAttribute(of: file, Array(name.utf8), value) }
  }
}
