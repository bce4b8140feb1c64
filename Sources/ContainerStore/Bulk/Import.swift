import EncryptedFile
import Locks
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
    let kept = try store.withSnapshot { try checkImport(tree, to: path, in: $0) }
    let aliases = aliases(of: tree, leavingOut: kept)
    let files = tree.items.indices.filter {
      tree.items[$0].kind == .file && !kept.contains($0) && aliases[$0] == nil
    }
    let new = NewFiles(files.count, in: store)
    return try store.namingPath(destination) {
      let sealed = try sealFiles(files, of: tree, as: new)
      var unneeded: [Extent] = []
      var aliasCount = 0
      var namesLeftOut: [Int] = []
      try store.transaction(storing: sealed.extents) { transaction in
        // Something may have come there meanwhile.
        let late = try checkImport(tree, to: path, in: transaction)
        var parent: (index: UInt32, id: UInt64)?
        var fileCount = 0
        // Files that have other names, by the item that they were stored with.
        var stored: [Int: UInt64] = [:]
        for (i, item) in tree.items.enumerated() where !kept.contains(i) {
          let file = item.kind == .file && aliases[i] == nil ? fileCount : nil
          if file != nil { fileCount += 1 }
          if let file, sealed.leftOut[file] != nil { continue }
          if late.contains(i) {
            if let file { unneeded += sealed.others[file]?.extents ?? sealed.runs[file] }
            continue
          }
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
          if let first = aliases[i] {
            if let id = stored[first] {
              try transaction.addName(of: id, directory, name)
              aliasCount += 1
            } else {
              namesLeftOut.append(i)
            }
            continue
          }
          guard let file else {
            try transaction.makeSymbolicLink(directory, name, to: item.target ?? [])
            continue
          }
          let other = sealed.others[file]
          var inode = Inode(
            kind: .file, permissions: item.permissions, now: transaction.now, epoch: store.epoch,
            secret: new[file].secret)
          inode.size = other?.size ?? item.size
          inode.modified = other?.modified ?? item.modified
          transaction.putFile(new[file].id, inode, extents: other?.extents ?? sealed.runs[file])
          try transaction.replace(directory, name, with: new[file].id, kind: .file)
          if item.hasOtherNames { stored[i] = new[file].id }
        }
      }
      store.slabs.discard(unneeded)
      for (_, error) in sealed.leftOut.sorted(by: { $0.key < $1.key }) { control.skipping?(error) }
      for i in namesLeftOut { control.skipping?(NativeTree.leftOutWithAnotherName(tree.path(of: i))) }
      if control.copied != nil {
        report(tree, leavingOut: kept.union(sealed.leftOut.keys.map { files[$0] }).union(namesLeftOut))
      }
      return BulkReceipt(
        fileCount: files.count - sealed.leftOut.count + aliasCount,
        byteCount: sealed.byteCount(of: files, tree))
    }
  }

  /// The size from which on a file is read to its end, when the disk has less of it and the file system
  /// does not tell its holes.
  private static let unseenByteCountMax: UInt64 = 1 << 40

  /// What a file turned out to have.
  private struct Contents {
    var size: UInt64 = 0
    var modified: Int64 = 0
    var extents: [Extent] = []
  }

  /// Sealed contents of files, by their index.
  private struct SealedFiles {
    var runs: FileRuns
    /// Files whose contents are not as long as was said, or were changed meanwhile: as they were read from end to end.
    var others: [Int: Contents] = [:]
    /// Files that could not be read.
    var leftOut: [Int: ContainerError] = [:]

    /// Everything that is to be stored.
    var extents: [Extent] {
      guard !others.isEmpty || !leftOut.isEmpty else { return runs.extents }
      return runs.extents(without: isReplaced) + others.values.flatMap(\.extents)
    }

    func isReplaced(_ file: Int) -> Bool { others[file] != nil || leftOut[file] != nil }

    func byteCount(of files: [Int], _ tree: NativeTree) -> UInt64 {
      files.indices.reduce(0) {
        $0 + (leftOut[$1] != nil ? 0 : others[$1]?.size ?? tree.items[files[$1]].size)
      }
    }
  }

  /// Seals and stores the contents of files. What turns out to have other contents than its size says is read once more, from end
  /// to end; what cannot be read is left out, if anything may be.
  private func sealFiles(_ files: [Int], of tree: NativeTree, as new: NewFiles) throws -> SealedFiles {
    var plan = UnitPlan()
    let troubles = Guarded<[Int: ContainerError]>([:])
    for (file, index) in files.enumerated() {
      let item = tree.items[index]
      let ranges = item.isSparse ? (try? tree.dataRanges(index)).flatMap { $0 } : nil
      // A size that is not on the disk is no reason to plan for it: /proc/kcore states 128 TiB.
      let isPlanned = !item.isSparse || ranges != nil || item.size < Self.unseenByteCountMax
      if !isPlanned { troubles.withLock { $0[file] = ContainerError(.sourceChanged) } }
      plan.addFile(byteCount: isPlanned ? item.size : 0, ranges: ranges)
    }
    let mayLeaveOut = control.skipping != nil && tree.top.kind == .directory
    @Sendable func fill(_ file: Int, _ buffer: UnsafeMutableRawBufferPointer, _ offset: UInt64) throws -> Bool
    {
      guard troubles.withLock({ $0[file] == nil }) else { return false }
      do {
        try tree.read(files[file], into: buffer, at: offset)
        return true
      } catch let error as ContainerError
        where error.code == .sourceChanged || mayLeaveOut && error.isOfSource
      {
        troubles.withLock { $0[file] = error }
        return false
      }
    }
    var sealed = SealedFiles(
      runs: try BulkWork(plan: plan, control: control, workers: store.workers, slabs: store.slabs).run {
        [store] context, unit in
        try UnitSealing(store: store).seal(unit, of: new, context: context) { piece, buffer in
          try fill(piece.file, buffer, piece.start * UInt64(SegmentLayout.plaintextByteCountMax))
        }
      })
    do {
      // Files without contents have no pieces and were not read yet.
      for file in files.indices where plan.piecesPerFile[file] == 0 {
        _ = try fill(file, .init(start: nil, count: 0), 0)
      }
      for (file, trouble) in troubles.withLock({ $0 }).sorted(by: { $0.key < $1.key }) {
        do {
          guard trouble.code == .sourceChanged else { throw trouble }
          sealed.others[file] = try sealAll(file, files[file], of: tree, as: new)
        } catch let error as ContainerError where mayLeaveOut && error.isOfSource {
          sealed.leftOut[file] = error
        }
      }
    } catch {
      store.slabs.discard(sealed.runs.extents + sealed.others.values.flatMap(\.extents))
      throw error
    }
    if !troubles.withLock({ $0.isEmpty }) {
      store.slabs.discard(sealed.runs.extents(without: { !sealed.isReplaced($0) }))
    }
    return sealed
  }

  /// Seals a file from its first byte to its last.
  private func sealAll(
    _ file: Int, _ item: Int, of tree: NativeTree, as new: NewFiles
  ) throws -> Contents {
    let stored = Guarded(Contents())
    let slab = SharedSlab(byteCount: 0)
    defer { store.slabs.giveBack(slab) }
    let cancellation = control.cancellation
    do {
      try store.workers.threads.forEach(1) { [store] context, _ in
        let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
        var bytes = [UInt8](repeating: 0, count: unit)
        try bytes.withUnsafeMutableBytes { buffer in
          let modified = try tree.readAll(item, into: buffer) { contents, offset in
            if cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
            let piece = Piece(
              file: file, start: offset / UInt64(SegmentLayout.plaintextByteCountMax),
              byteCount: contents.count)
            let runs = try UnitSealing(store: store).seal(
              Unit(pieces: [piece], slab: slab), of: new, context: context
            ) {
              $1.copyMemory(from: UnsafeRawBufferPointer(contents))
              return true
            }
            stored.withLock { stored in
              stored.size += UInt64(contents.count)
              stored.extents += runs.map(\.extent)
            }
          }
          stored.withLock { $0.modified = modified }
        }
      }
    } catch {
      store.slabs.discard(stored.withLock { $0.extents })
      throw error
    }
    return stored.withLock { $0 }
  }

  /// Items that are other names of files of the tree, with the first item of each.
  private func aliases(of tree: NativeTree, leavingOut: Set<Int>) -> [Int: Int] {
    var aliases: [Int: Int] = [:]
    guard tree.items.contains(where: \.hasOtherNames) else { return aliases }
    var firsts: [FileIdentity: Int] = [:]
    for (i, item) in tree.items.enumerated() where item.hasOtherNames && !leavingOut.contains(i) {
      if let first = firsts[item.identity] { aliases[i] = first } else { firsts[item.identity] = i }
    }
    return aliases
  }

  private func report(_ tree: NativeTree, leavingOut: Set<Int>) {
    guard let copied = control.copied else { return }
    for (i, item) in tree.items.enumerated() where !leavingOut.contains(i) {
      copied(BulkItem(tree.names(of: i), item.kind, modified: item.modified))
    }
  }

  /// Returns the items that are left out because something is there that is to be kept. Throws
  /// `isADirectory` or `fileExists` if an item would replace a directory with a file or the reverse.
  private func checkImport(
    _ tree: NativeTree, to path: ResolvedPath, in catalog: some CatalogReading
  ) throws -> Set<Int> {
    var kept: Set<Int> = []
    // Directories of the tree that are there, by the index of their item.
    var directories: [Int: UInt64] = [:]
    for (i, item) in tree.items.enumerated() {
      let found: DirectoryEntry?
      if let name = item.name {
        guard let parent = directories[Int(item.parent)] else { continue }
        found = try catalog.entry(parent, name)
      } else {
        do {
          found = try catalog.find(path).map { DirectoryEntry(kind: $0.inode.kind, file: $0.id) }
        } catch ContainerError.noSuchFile {
          return kept
        }
      }
      guard let found else { continue }
      if control.keepsExisting, item.kind != .directory {
        kept.insert(i)
      } else if found.kind == .directory, item.kind == .directory {
        directories[i] = found.file
      } else if found.kind == .directory || item.kind == .directory {
        throw ContainerError(
          found.kind == .directory ? .isADirectory : .fileExists,
          path: ResolvedPath(path.names + tree.names(of: i)).text)
      }
    }
    return kept
  }
}
