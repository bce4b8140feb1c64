import EncryptedFile
import SodiumPrimitives

/// Copies native files into a store.
struct Import {
  let store: Store
  let control: BulkControl

  /// See ``Container/importItem(at:to:control:)``.
  func run(_ tree: NativeTree, to place: StorePath) throws -> BulkReceipt {
    let destination = place.text
    let path = try store.withSnapshot { try place.resolved(in: $0) }
    if path.namesDirectory || path.names.isEmpty, tree.top.kind != .directory {
      throw ContainerError(.isADirectory, path: destination)
    }
    try store.withSnapshot { try checkImport(tree, to: path, in: $0) }
    let files = tree.items.indices.filter { tree.items[$0].kind == .file }
    let new = NewFiles(files.count, in: store)
    return try store.namingPath(destination) {
      let (runs, byteCount) = try sealFiles(files, of: tree, as: new, control: control)
      try store.transaction(storing: runs.extents) { transaction in
        try checkImport(tree, to: path, in: transaction)
        var parent: (index: UInt32, id: UInt64)?
        var fileCount = 0
        for (i, item) in tree.items.enumerated() {
          if item.kind == .directory {
            _ = try transaction.directory(
              path.names + tree.names(of: i), path: destination, permissions: item.permissions)
            continue
          }
          // Items of one directory are adjacent, so the last parent is kept.
          if parent?.index != item.parent {
            let names = path.names + tree.names(of: i)
            parent = (item.parent, try transaction.directory(names.dropLast(), path: destination))
          }
          let (directory, name) = (parent!.id, item.name ?? path.names.last!)
          if item.kind == .symbolicLink {
            if let existing = try transaction.entry(directory, name) {
              try transaction.dropFile(existing.file)
            }
            try transaction.makeSymbolicLink(directory, name, to: item.target ?? [])
            continue
          }
          let file = new[fileCount]
          var inode = Inode(
            kind: .file, permissions: item.permissions, now: transaction.now, epoch: store.epoch,
            secret: file.secret)
          inode.size = item.size
          inode.modified = item.modified
          transaction.putFile(file.id, inode, extents: runs[fileCount])
          try transaction.replace(directory, name, with: file.id, kind: .file)
          fileCount += 1
        }
      }
      return BulkReceipt(fileCount: files.count, byteCount: byteCount)
    }
  }

  /// Seals and stores the contents of files.
  private func sealFiles(
    _ files: [Int], of tree: NativeTree, as new: NewFiles, control: BulkControl
  ) throws -> (runs: FileRuns, byteCount: UInt64) {
    var plan = UnitPlan()
    for file in files { plan.addFile(byteCount: tree.items[file].size) }
    let runs = try BulkWork(plan: plan, control: control, workers: store.workers, slabs: store.slabs).run {
      [store] context, pieces in
      try UnitSealing(store: store).seal(pieces, of: new, context: context) { piece, buffer in
        let offset = piece.start * UInt64(SegmentLayout.plaintextByteCountMax)
        try tree.read(files[piece.file], into: buffer, at: offset)
      }
    }
    do {
      // Empty files have no pieces and were not read yet: check that they are unchanged.
      for file in files where tree.items[file].size == 0 {
        try tree.read(file, into: .init(start: nil, count: 0), at: 0)
      }
    } catch {
      store.slabs.discard(runs.extents)
      throw error
    }
    return (runs, plan.byteCount)
  }

  /// Throws `isADirectory` or `fileExists` if an item would replace a directory with a file or the
  /// reverse.
  private func checkImport(_ tree: NativeTree, to path: ResolvedPath, in catalog: some CatalogReading)
    throws
  {
    for (i, item) in tree.items.enumerated() {
      let place = ResolvedPath(path.names + tree.names(of: i))
      let found: FoundFile?
      do { found = try catalog.find(place) } catch ContainerError.noSuchFile { continue }
      guard let found, (found.inode.kind == .directory) != (item.kind == .directory) else { continue }
      throw ContainerError(found.inode.kind == .directory ? .isADirectory : .fileExists, path: place.text)
    }
  }
}
