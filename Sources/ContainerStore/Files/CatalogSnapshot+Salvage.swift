import EncryptedFile

// Reads of a container with damaged parts. The caller's closure receives each error that concerns
// one file or directory, with its path, and the rest is read. Without a closure the first error is
// thrown.

extension CatalogSnapshot {
  /// Stands for the record of a directory that is lost: of the owner alone, from 1970.
  static let lostDirectory = Inode(
    kind: .directory, permissions: 0o700, now: 0, epoch: 1,
    secret: [UInt8](repeating: 0, count: Inode.secretByteCount))

  /// The item at a path; where the record of a directory is lost, one that stands for it.
  func readable(_ path: ResolvedPath) throws -> FoundFile {
    do {
      return try existing(path)
    } catch  where TableFile.isLoss(error) {
      guard let directory = try? existingDirectory(path) else { throw error }
      return FoundFile(id: directory, inode: Self.lostDirectory)
    }
  }

  /// Where a block of them is lost, those that are left count when they are the whole file: no two extents of a file overlap, so none is
  /// missing.
  func extents(_ file: UInt64, _ inode: Inode) throws -> [Extent] {
    do {
      return try recordedExtents(file, inode)
    } catch  where TableFile.isLoss(error) {
      var salvaging = self
      salvaging.readMode = .salvaging
      var end: UInt64 = 0
      let left = try salvaging.recordedExtents(file, inode)
      for extent in left {
        guard extent.start == end else { throw error }
        end = extent.end
      }
      guard end >= SegmentLayout.segmentCount(inode.size) else { throw error }
      return left
    }
  }

  /// See ``ContainerReading/readableTree(at:recursively:skipping:)``.
  func readableTree(
    at path: StorePath, recursively: Bool, skipping: (ContainerError) -> Void
  ) throws -> [ListedFile] {
    let location = try path.resolved(in: self)
    let top = try existingDirectory(location)
    return try withoutActuallyEscaping(skipping) { skipping in
      try readableSubtree(of: top, at: location.names, recursively: recursively, skipping: skipping)
    }.map(ListedFile.init)
  }

  func readableSubtree(
    of directory: UInt64, at path: [FileName], recursively: Bool = true,
    skipping: ((ContainerError) -> Void)?
  ) throws -> [(names: [FileName], file: FoundFile)] {
    guard skipping != nil else { return try subtree(directory) }
    try skippingDamage(at: path, skipping) { try inode(directory) }
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
        } catch  where TableFile.isLoss(error) {
          // Keep the names that are outside the damaged block.
          try skippingDamage(at: path + names, skipping) { try collect(salvaging) }
          throw error
        }
      }
      // If one of the inodes is damaged, reading each inode alone finds which one.
      let inodes = try? self.inodes(entries.map(\.entry.file))
      for (i, (name, entry)) in entries.enumerated() {
        let names = names + [name]
        let isDirectory = entry.kind == .directory
        let isNew = try skippingDamage(at: path + names, skipping) { () -> Bool in
          guard !isDirectory || seen.insert(entry.file).inserted else {
            throw ContainerError(.catalogDamaged, detail: "a directory is reached twice")
          }
          return true
        }
        let inode = try skippingDamage(at: path + names, skipping) {
          try inodes?[i] ?? self.inode(entry.file)
        }
        guard isNew != nil, let inode = inode ?? (isDirectory ? Self.lostDirectory : nil) else { continue }
        found.append((names, FoundFile(id: entry.file, inode: inode)))
        if isDirectory, recursively { open.append((names, entry.file)) }
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
