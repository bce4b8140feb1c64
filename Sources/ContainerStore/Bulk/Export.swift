import EncryptedFile
import Locks
import SodiumPrimitives

/// Copies files of a snapshot to the native file system.
struct Export {
  let store: Store
  let control: BulkControl

  /// See ``ContainerReading/exportItem(_:to:replacing:control:)``.
  func run(
    _ source: StorePath, to native: String, replacing: Bool, in records: CatalogSnapshot
  ) throws -> BulkReceipt {
    try store.io.directory?.identity?.requireOutside(native)
    let path = try source.resolved(in: records)
    let top = try control.skipping == nil ? records.existing(path) : records.readable(path)
    let skipping = top.inode.kind == .directory ? control.skipping : nil
    var items: [(names: [FileName], file: FoundFile)] = [([], top)]
    if top.inode.kind == .directory {
      items += try records.readableSubtree(of: top.id, at: path.names, skipping: skipping)
    }
    func place(_ names: [FileName]) -> String {
      ([native] + names.map(\.native.text)).joined(separator: "/")
    }
    let output = NativeOutput()
    func isKept(_ names: [FileName]) -> Bool { control.keepsExisting && NativeOutput.isTaken(place(names)) }
    /// Leaves out what the native file system refuses below the folder.
    func leavingOut<R>(_ names: [FileName], _ body: () throws -> R) throws -> R? {
      do { return try body() } catch let error as ContainerError {
        guard let skipping, !names.isEmpty, error.isRefusal else { throw error }
        skipping(error)
        return nil
      }
    }
    do {
      // A directory made by this export is empty, so files in it need no check for existing items.
      var newDirectories: Set<[FileName]> = []
      var refusedDirectories: Set<[FileName]> = []
      for (names, file) in items where file.inode.kind == .directory {
        let isNew =
          refusedDirectories.contains(Array(names.dropLast()))
          ? nil
          : try leavingOut(names) {
            try output.makeDirectory(
              place(names), permissions: file.inode.permissions, followingLinks: names.isEmpty)
          }
        if isNew == nil { refusedDirectories.insert(names) }
        if isNew == true { newDirectories.insert(names) }
      }
      if !refusedDirectories.isEmpty {
        items.removeAll { !$0.names.isEmpty && refusedDirectories.contains(Array($0.names.dropLast())) }
      }
      var links: [(names: [FileName], target: [UInt8], replaced: FileIdentity?)] = []
      for (names, file) in items where file.inode.kind == .symbolicLink && !isKept(names) {
        try leavingOut(names) {
          links.append(
            (names, file.inode.target, try NativeOutput.checkLink(place(names), replacing: replacing)))
        }
      }
      var plan = UnitPlan()
      typealias Planned = (
        item: Int, path: String, file: FoundFile, output: NativeOutput.Unfinished?, byteCount: UInt64
      )
      var planned: [Planned] = []
      var parent: (names: [FileName], isNew: Bool) = ([], newDirectories.contains([]))
      // Files with several names, by the first of them, and the other names.
      var firsts: [UInt64: Int] = [:]
      var aliases: [(names: [FileName], first: Int, replaced: FileIdentity?)] = []
      for (i, (names, file)) in items.enumerated() where file.inode.kind == .file {
        if isKept(names) { continue }
        let (source, destination) = (path.names + names, place(names))
        var replaced: FileIdentity?
        // Files of one directory are adjacent.
        if !names.dropLast().elementsEqual(parent.names) {
          parent.names = Array(names.dropLast())
          parent.isNew = newDirectories.contains(parent.names)
        }
        if names.isEmpty || !parent.isNew {
          let found = try leavingOut(names) { try NativeOutput.check(destination, replacing: replacing) }
          guard let found else { continue }
          replaced = found
        }
        if file.inode.linkCount > 1, let first = firsts[file.id] {
          aliases.append((names, first, replaced))
          continue
        }
        let extents = try skippingDamage(at: source, skipping) {
          try records.checkedExtents(of: file, at: StorePath.text(source))
        }
        guard let extents else { continue }
        let inode = file.inode
        let before = plan.byteCount
        let pieceCount = plan.addFile(extents: extents)
        let byteCount = plan.byteCount - before
        // What is planned for a file that is refused here is opened, and goes nowhere.
        let unfinished = try leavingOut(names) {
          // Preallocation would fill the holes.
          try output.begin(
            destination, replacing: replaced, size: byteCount == inode.size ? byteCount : 0,
            permissions: inode.permissions, inOnePiece: pieceCount == 1 && byteCount == inode.size)
        }
        if file.inode.linkCount > 1 { firsts[file.id] = planned.count }
        planned.append((i, StorePath.text(source), file, unfinished, byteCount))
      }
      let files = planned
      // Files that are left out.
      let failures = Guarded<[Int: ContainerError]>([:])
      let goesOn = skipping != nil
      @Sendable func leavingOutFile(_ file: Int, _ body: () throws -> Void) throws {
        do { try body() } catch let error as ContainerError
          where goesOn && (error.isDamage || error.isRefusal)
        {
          failures.withLock { $0[file] = error }
        }
      }
      _ = try BulkWork(plan: plan, control: control, workers: store.workers).run {
        [store] context, unit in
        for piece in unit.pieces where failures.withLock({ $0[piece.file] }) == nil {
          let (_, path, file, unfinished, _) = files[piece.file]
          guard let unfinished else { continue }
          try leavingOutFile(piece.file) {
            let plaintext = try Self.openPiece(piece, of: file, path: path, in: store, context: context)
            if unfinished.isWhole {
              try output.writeWhole(plaintext, to: unfinished, modified: file.inode.modified)
            } else {
              let offset = piece.start * UInt64(SegmentLayout.plaintextByteCountMax)
              try output.write(plaintext, to: unfinished, at: offset)
            }
          }
        }
        return []
      }
      let failed = failures.withLock { $0 }
      let whole = files.indices.filter { failed[$0] == nil && files[$0].output != nil }
      try store.workers.threads.forEach((whole.count + Self.filesPerFinish - 1) / Self.filesPerFinish) {
        _, index in
        for i in whole.dropFirst(index * Self.filesPerFinish).prefix(Self.filesPerFinish) {
          let (_, _, file, unfinished, _) = files[i]
          guard let unfinished else { continue }
          try leavingOutFile(i) {
            try output.finish(unfinished, size: file.inode.size, modified: file.inode.modified)
          }
        }
      }
      let leftOut = failures.withLock { $0 }
      for (i, error) in leftOut.sorted(by: { $0.key < $1.key }) {
        if let unfinished = files[i].output { output.remove(unfinished) }
        skipping?(error)
      }
      var aliasCount = 0
      for (names, first, replaced) in aliases {
        guard leftOut[first] == nil, let file = files[first].output else {
          skipping?(NativeTree.leftOutWithAnotherName(place(names)))
          continue
        }
        try leavingOut(names) {
          try output.addName(place(names), to: file, replacing: replaced)
          control.copied?(BulkItem(names, .file, modified: files[first].file.inode.modified))
          aliasCount += 1
        }
      }
      // Make links last, so that no file is written through one.
      for (names, target, replaced) in links {
        try leavingOut(names) {
          try output.makeLink(place(names), to: target, replacing: replaced)
          control.copied?(BulkItem(names, .symbolicLink, modified: 0))
        }
      }
      let done = whole.filter { leftOut[$0] == nil }
      if let copied = control.copied {
        for i in done {
          copied(BulkItem(items[files[i].item].names, .file, modified: files[i].file.inode.modified))
        }
        for (names, file) in items where file.inode.kind == .directory && !refusedDirectories.contains(names)
        {
          copied(BulkItem(names, .directory, modified: file.inode.modified))
        }
      }
      return BulkReceipt(
        fileCount: done.count + aliasCount, byteCount: done.reduce(0) { $0 + files[$1].byteCount },
        refusedAttributes: output.refusesAttributes,
        escapedNameCount: items.count { $0.names.last?.native.isEscaped == true })
    } catch {
      output.undo()
      throw store.translated(error, path: source.text)
    }
  }

  /// The number of files that one thread renames in a row. Threads that alternate in one directory
  /// would wait for its lock each time.
  private static let filesPerFinish = 128

  /// The plaintext of a piece, in the context's output buffer.
  private static func openPiece(
    _ piece: Piece, of file: FoundFile, path: String, in store: Store, context: WorkerContext
  ) throws -> UnsafeRawBufferPointer {
    let extent = piece.source!  // planned from extents
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<extent.storedByteCount])
    let plaintext = UnsafeMutableRawBufferPointer(rebasing: context.output[0..<extent.plaintextByteCount])
    try store.namingPath(path) {
      let count = try store.slabs.read(extent.slab, extent.offset, into: stored)
      var output = OutputRawSpan(buffer: plaintext, initializedCount: 0)
      try context.cipher.open(
        stored.bytes.extracting(first: count), of: extent.run, key: try store.fileKey(file.id, file.inode),
        into: &output)
    }
    return UnsafeRawBufferPointer(plaintext)
  }
}
