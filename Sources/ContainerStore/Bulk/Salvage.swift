// Reading on where a part of a container is damaged: a caller that passes a closure gets every error that concerns one file or
// directory, with its path, and everything else is read. Without a closure the first error is thrown.

extension ContainerError {
  /// Whether the error concerns what is stored at one path: other files may be whole.
  public var isDamage: Bool {
    switch code {
    case .fileDamaged, .tableDamaged, .catalogDamaged: true
    // A bad sector below a slab, or something else in a slab's place.
    case .ioFailed: circumstance == .usual && fileFault.contains((cause as? IOFailure)?.errno ?? 0)
    default: false
    }
  }
}

extension Container {
  /// Everything below a directory that can be read, parents first. `skipping` takes an error for each file and directory that is
  /// left out, or of which a part of the names is, because the catalog is damaged there.
  public func readableTree(at path: String, skipping: (ContainerError) -> Void) throws -> [ListedFile] {
    let place = try StorePath(path)
    return try withSnapshot { records in
      let path = try place.resolved(in: records)
      let top = try records.existingDirectory(path)
      return try withoutActuallyEscaping(skipping) { skipping in
        try readableSubtree(of: top.id, at: path.names, in: records, skipping: skipping)
      }.map { names, file in
        ListedFile(
          path: names.map(\.description).joined(separator: "/"), attributes: FileAttributes(file))
      }
    }
  }

  func readableSubtree(
    of directory: UInt64, at path: [FileName], in records: CatalogSnapshot,
    skipping: ((ContainerError) -> Void)?
  ) throws -> [(names: [FileName], file: FoundFile)] {
    guard skipping != nil else { return try records.subtree(directory) }
    var found: [(names: [FileName], file: FoundFile)] = []
    var open: [(names: [FileName], id: UInt64)] = [([], directory)]
    var seen: Set<UInt64> = [directory]
    var salvaging = records
    salvaging.readMode = .salvaging
    while let (names, id) = open.popLast() {
      var entries: [(name: FileName, entry: DirectoryEntry)] = []
      func collect(_ records: CatalogSnapshot) throws {
        entries = []
        try records.scan(.entries(parent: id)) { key, value in
          let entry = try CatalogSnapshot.decode(value) { bytes throws(MalformedBytes) in
            try DirectoryEntry(bytes)
          }
          entries.append((try CatalogPlace(key).name, entry))
        }
      }
      try attempt(path + names, skipping) {
        do {
          try collect(records)
        } catch let error as ContainerError where error.code == .tableDamaged {
          // The names beside the damaged block are kept.
          try attempt(path + names, skipping) { try collect(salvaging) }
          throw error
        }
      }
      // What is damaged among them shows when each is read alone.
      let inodes = try? records.inodes(entries.map(\.entry.file))
      for (i, (name, entry)) in entries.enumerated() {
        let names = names + [name]
        let inode = try attempt(path + names, skipping) {
          let inode = try inodes?[i] ?? records.inode(entry.file)
          if entry.kind == .directory, !seen.insert(entry.file).inserted {
            throw ContainerError(.catalogDamaged, detail: "a directory is reached twice")
          }
          return inode
        }
        guard let inode else { continue }
        found.append((names, FoundFile(id: entry.file, inode: inode)))
        if entry.kind == .directory { open.append((names, entry.file)) }
      }
    }
    return found
  }

  /// The result of `body`, or nil after its damage was reported.
  @discardableResult
  func attempt<R>(_ names: [FileName], _ skipping: ((ContainerError) -> Void)?, _ body: () throws -> R) throws
    -> R?
  {
    do {
      return try namingPath(StorePath.text(names), body)
    } catch let error as ContainerError where error.isDamage {
      guard let skipping else { throw error }
      skipping(error)
      return nil
    }
  }
}
