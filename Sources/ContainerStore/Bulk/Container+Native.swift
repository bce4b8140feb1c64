import EncryptedFile
import SodiumPrimitives

/// What an import or export did.
public struct BulkReceipt: Sendable {
  public var fileCount: Int
  public var byteCount: UInt64
}

extension Container {
  /// Copies a native file, or a folder with everything in it, to `destination`, in one commit. Files that are at the destination are
  /// replaced; directories are merged. Directories on the way to it are made.
  ///
  /// A symbolic link is followed at `native` itself, and stored as a link below it. Throws `noSuchFile`, `cannotStore` for pipes and
  /// devices and for names that are not UTF-8, `sourceChanged`, `fileExists` where
  /// one side has a directory and the other a file.
  @discardableResult
  public func importItem(
    at native: String, to destination: String, control: BulkControl = BulkControl()
  ) throws -> BulkReceipt {
    let place = try StorePath(destination)
    guard mode == .readWrite else { throw ContainerError(.readOnly, path: destination) }
    try requireOpen()
    let tree = try NativeTree(native)
    let path = try withSnapshot { try place.resolved(in: $0) }
    if path.namesDirectory || path.names.isEmpty, tree.top.kind != .directory {
      throw ContainerError(.isADirectory, path: destination)
    }
    try withSnapshot { try checkImport(tree, to: path, in: $0) }
    let files = tree.items.indices.filter { tree.items[$0].kind == .file }
    let new = makeFiles(files.count)
    return try namingPath(destination) {
      let (runs, byteCount) = try sealFiles(files, of: tree, as: new, control: control)
      try transaction(storing: runs.extents) { transaction in
        try checkImport(tree, to: path, in: transaction)
        var parent: (index: UInt32, id: UInt64)?
        var fileCount = 0
        for (i, item) in tree.items.enumerated() {
          if item.kind == .directory {
            _ = try transaction.directory(
              path.names + tree.names(of: i), path: destination, permissions: item.permissions)
            continue
          }
          // What is in one directory stands together.
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
            kind: .file, permissions: item.permissions, now: transaction.now, epoch: epoch,
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
    let runs = try BulkWork(plan: plan, control: control, workers: workers, slabs: slabs).run {
      context, pieces in
      try self.sealUnit(pieces, of: new, context: context) { piece, buffer in
        let offset = piece.start * UInt64(SegmentLayout.plaintextByteCountMax)
        try tree.read(files[piece.file], into: buffer, at: offset)
      }
    }
    do {
      // A file without contents was not read yet.
      for file in files where tree.items[file].size == 0 {
        try tree.read(file, into: .init(start: nil, count: 0), at: 0)
      }
    } catch {
      slabs.discard(runs.extents)
      throw error
    }
    return (runs, plan.byteCount)
  }

  /// That no file stands where a directory is to be, nor the other way round.
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

  /// Copies a file, or a directory with everything in it, to the native file system. Each file appears under its name when it is
  /// whole; when anything fails, what was not finished is removed. Existing files are replaced if `replacing`. A symbolic link is
  /// followed at `source` itself, and becomes a native one below it, with the target that it has in the container.
  ///
  /// Permissions are those that are stored, without set-id and sticky bits and the right of everybody to write, and less what the
  /// process's umask takes away. Throws `fileDamaged` and `tableDamaged`, below a directory only without ``BulkControl/skipping``.
  @discardableResult
  public func exportItem(
    _ source: String, to native: String, replacing: Bool = true, control: BulkControl = BulkControl()
  ) throws -> BulkReceipt {
    let sourcePath = try StorePath(source)
    return try withSnapshot { records in
      let path = try sourcePath.resolved(in: records)
      let top = try records.existing(path)
      let skipping = top.inode.kind == .directory ? control.skipping : nil
      var items: [(names: [FileName], file: FoundFile)] = [([], top)]
      if top.inode.kind == .directory {
        items += try readableSubtree(of: top.id, at: path.names, in: records, skipping: skipping)
      }
      func place(_ names: [FileName]) -> String {
        ([native] + names.map(\.description)).joined(separator: "/")
      }
      let output = NativeOutput()
      do {
        // Nothing stands in the way in a directory that this export has made.
        var newDirectories: Set<[FileName]> = []
        for (names, file) in items where file.inode.kind == .directory {
          let isNew = try output.makeDirectory(
            place(names), permissions: file.inode.permissions, followingLinks: names.isEmpty)
          if isNew { newDirectories.insert(names) }
        }
        var plan = UnitPlan()
        var planned: [(path: String, file: FoundFile, output: NativeOutput.Unfinished, byteCount: UInt64)] =
          []
        for (names, file) in items where file.inode.kind == .file {
          let (source, destination) = (path.names + names, place(names))
          if names.isEmpty || !newDirectories.contains(Array(names.dropLast())) {
            try NativeOutput.check(destination, replacing: replacing)
          }
          let extents = try attempt(source, skipping) {
            try checkedExtents(of: file, at: StorePath.text(source), in: records)
          }
          guard let extents else { continue }
          let inode = file.inode
          let before = plan.byteCount
          let pieceCount = plan.addFile(extents: extents)
          let byteCount = plan.byteCount - before
          let unfinished = try output.begin(
            destination, size: inode.size, permissions: inode.permissions,
            inOnePiece: pieceCount == 1 && byteCount == inode.size)
          planned.append((StorePath.text(source), file, unfinished, byteCount))
        }
        let files = planned
        let damage = Guarded<[Int: ContainerError]>([:])
        let goesOn = skipping != nil
        _ = try BulkWork(plan: plan, control: control, workers: workers).run {
          context, pieces in
          for piece in pieces where damage.withLock({ $0[piece.file] }) == nil {
            let (path, file, unfinished, _) = files[piece.file]
            let plaintext: UnsafeRawBufferPointer
            do {
              plaintext = try self.openPiece(piece, of: file, path: path, context: context)
            } catch let error as ContainerError where goesOn && error.isDamage {
              damage.withLock { $0[piece.file] = error }
              continue
            }
            if unfinished.isWhole {
              try output.writeWhole(plaintext, to: unfinished, modified: file.inode.modified)
            } else {
              let offset = piece.start * UInt64(SegmentLayout.plaintextByteCountMax)
              try output.write(plaintext, to: unfinished, at: offset)
            }
          }
          return []
        }
        let damaged = damage.withLock { $0 }
        let whole = files.indices.filter { damaged[$0] == nil }
        for (i, error) in damaged.sorted(by: { $0.key < $1.key }) {
          output.remove(files[i].output)
          skipping?(error)
        }
        try workers.forEach((whole.count + Self.filesPerFinish - 1) / Self.filesPerFinish) { _, index in
          for i in whole.dropFirst(index * Self.filesPerFinish).prefix(Self.filesPerFinish) {
            let (_, file, unfinished, _) = files[i]
            try output.finish(unfinished, size: file.inode.size, modified: file.inode.modified)
          }
        }
        let receipt = BulkReceipt(
          fileCount: whole.count, byteCount: whole.reduce(0) { $0 + files[$1].byteCount })
        // Last, so that nothing is written through one.
        for item in items where item.file.inode.kind == .symbolicLink {
          try output.makeLink(place(item.names), to: item.file.inode.target, replacing: replacing)
        }
        return receipt
      } catch {
        output.undo()
        throw translated(error, path: source)
      }
    }
  }

  /// One thread renames so many files in a row. Threads that took turns in one directory would wait for its lock each time.
  private static let filesPerFinish = 128

  /// The plaintext of a piece, in the context's output buffer.
  private func openPiece(
    _ piece: Piece, of file: FoundFile, path: String, context: WorkerContext
  ) throws -> UnsafeRawBufferPointer {
    let run = piece.source!  // planned from extents
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<run.storedByteCount])
    let plaintext = UnsafeMutableRawBufferPointer(rebasing: context.output[0..<run.plaintextByteCount])
    try namingPath(path) {
      let count = try slabs.read(run.slab, run.offset, into: stored)
      let key = try fileKey(file.id, file.inode)
      try context.cipher.open(
        run: run, stored: UnsafeRawBufferPointer(rebasing: stored[0..<count]),
        key: try key.writerKey(session: run.writeNumber.session),
        into: plaintext)
    }
    return UnsafeRawBufferPointer(plaintext)
  }

  /// Copies a file, or a directory with everything in it, inside the container, in one commit. The copies have keys of their own.
  /// Throws `fileExists` when something is at the destination, unless `replacing` and both are files: then a symbolic link is followed.
  /// The directory that the copy is put into must be there, unless `makingParents` and a directory is copied.
  public func copy(
    _ source: String, to destination: String, replacing: Bool = false, makingParents: Bool = false,
    control: BulkControl = BulkControl()
  ) throws {
    let from = try StorePath(source)
    let to = try StorePath(destination)
    guard mode == .readWrite else { throw ContainerError(.readOnly, path: source) }
    try withSnapshot { records in
      let from = try from.resolved(in: records, followingLast: false)
      let to = try to.resolved(in: records, followingLast: replacing)
      guard !to.names.isEmpty else { throw ContainerError(.fileExists, path: destination) }
      let top = try records.existing(from)
      if top.inode.kind == .directory, to.names.starts(with: from.names) {
        throw ContainerError(from.names == to.names ? .fileExists : .moveIntoItself, path: destination)
      }
      if top.inode.kind != .directory, to.namesDirectory {
        throw ContainerError(.isADirectory, path: destination)
      }
      var items: [(names: [FileName], file: FoundFile)] = [([], top)]
      if top.inode.kind == .directory { items += try records.subtree(top.id) }
      /// The place that the copy gets, and what is there and goes.
      func check(_ catalog: some CatalogReading) throws -> DirectoryEntry? {
        let place: (directory: UInt64, name: FileName)
        do {
          place = try catalog.parent(of: to)
        } catch ContainerError.noSuchFile where makingParents && top.inode.kind == .directory {
          return nil
        }
        guard let existing = try catalog.entry(place.directory, place.name) else { return nil }
        guard replacing, existing.kind != .directory, top.inode.kind != .directory, existing.file != top.id
        else { throw ContainerError(.fileExists, path: destination) }
        return existing
      }
      _ = try check(records)
      let files = items.filter { $0.file.inode.kind == .file }
      let sources = files.map(\.file)
      let paths = files.map { StorePath.text(from.names + $0.names) }
      var plan = UnitPlan()
      for (i, file) in sources.enumerated() {
        plan.addFile(extents: try checkedExtents(of: file, at: paths[i], in: records))
      }
      // Of the same moment as the contents: the original may be gone when they are copied.
      let attributes = try records.attributes(of: items.map(\.file.id))
      let new = makeFiles(files.count)
      try namingPath(destination) {
        let runs = try BulkWork(plan: plan, control: control, workers: workers, slabs: slabs).run {
          context, pieces in
          try self.resealUnit(
            pieces, from: self, sources: sources, paths: paths, of: new, checkInterval: 0, context: context)
        }
        try transaction(storing: runs.extents) { transaction in
          if let existing = try check(transaction) { try transaction.dropFile(existing.file) }
          var copies: [(file: UInt64, copy: UInt64)] = []
          for item in items where item.file.inode.kind == .directory {
            let directory = try transaction.directory(
              to.names + item.names, path: destination, permissions: item.file.inode.permissions)
            copies.append((item.file.id, directory))
          }
          for item in items where item.file.inode.kind == .symbolicLink {
            let names = to.names + item.names
            let directory = try transaction.directory(names.dropLast(), path: destination)
            let link = try transaction.makeSymbolicLink(directory, names.last!, to: item.file.inode.target)
            copies.append((item.file.id, link))
          }
          for (i, file) in files.enumerated() {
            let names = to.names + file.names
            let directory = try transaction.directory(names.dropLast(), path: destination)
            let copy = new[i]
            transaction.putFile(
              copy.id, newInode(like: sources[i].inode, secret: copy.secret, now: transaction.now),
              extents: runs[i])
            try transaction.link(directory, names.last!, to: copy.id, kind: .file)
            copies.append((sources[i].id, copy.id))
          }
          for (file, copy) in copies {
            for (name, value) in attributes[file] ?? [] { transaction.putAttribute(of: copy, name, value) }
          }
          // Now that nothing more is put into them.
          let originals = Dictionary(
            uniqueKeysWithValues: items.lazy.filter { $0.file.inode.kind == .directory }
              .map { ($0.file.id, $0.file.inode.modified) })
          for (file, copy) in copies {
            guard let modified = originals[file] else { continue }
            try transaction.apply(AttributeChanges(modified: modified), to: copy)
          }
        }
      }
    }
  }
}
