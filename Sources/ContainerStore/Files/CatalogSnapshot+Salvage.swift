// Reads of a container with damaged parts. The caller's closure receives each error that concerns
// one file or directory, with its path, and the rest is read. Without a closure the first error is
// thrown.

extension CatalogSnapshot {
  /// See ``ContainerReading/readableTree(at:skipping:)``.
  func readableTree(at path: StorePath, skipping: (ContainerError) -> Void) throws -> [ListedFile] {
    let location = try path.resolved(in: self)
    let top = try existingDirectory(location)
    return try withoutActuallyEscaping(skipping) { skipping in
      try readableSubtree(of: top.id, at: location.names, skipping: skipping)
    }.map(ListedFile.init)
  }

  func readableSubtree(
    of directory: UInt64, at path: [FileName],
    skipping: ((ContainerError) -> Void)?
  ) throws -> [(names: [FileName], file: FoundFile)] {
    guard skipping != nil else { return try subtree(directory) }
    var found: [(names: [FileName], file: FoundFile)] = []
    var open: [(names: [FileName], id: UInt64)] = [([], directory)]
    var seen: Set<UInt64> = [directory]
    var salvaging = self
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
      try skippingDamage(at: path + names, skipping) {
        do {
          try collect(self)
        } catch let error as ContainerError where error.code == .tableDamaged {
          // Keep the names that are outside the damaged block.
          try skippingDamage(at: path + names, skipping) { try collect(salvaging) }
          throw error
        }
      }
      // If one of the inodes is damaged, reading each inode alone finds which one.
      let inodes = try? self.inodes(entries.map(\.entry.file))
      for (i, (name, entry)) in entries.enumerated() {
        let names = names + [name]
        let inode = try skippingDamage(at: path + names, skipping) {
          let inode = try inodes?[i] ?? self.inode(entry.file)
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
}

/// Returns the result of `body`, or nil after reporting damage to `skipping` with the path. Without
/// `skipping` the damage is thrown.
@discardableResult
func skippingDamage<R>(
  at names: [FileName], _ skipping: ((ContainerError) -> Void)?, _ body: () throws -> R
) throws -> R? {
  let error: ContainerError
  do {
    return try body()
  } catch let failure as IOFailure {
    error = ContainerError.from(failure)
  } catch let thrown as ContainerError {
    error = thrown
  }
  let named = error.with(path: StorePath.text(names))
  guard named.isDamage, let skipping else { throw named }
  skipping(named)
  return nil
}
