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
    let path = try source.resolved(in: records)
    let top = try records.existing(path)
    let skipping = top.inode.kind == .directory ? control.skipping : nil
    var items: [(names: [FileName], file: FoundFile)] = [([], top)]
    if top.inode.kind == .directory {
      items += try records.readableSubtree(of: top.id, at: path.names, skipping: skipping)
    }
    func place(_ names: [FileName]) -> String {
      ([native] + names.map(\.description)).joined(separator: "/")
    }
    let output = NativeOutput()
    do {
      // A directory made by this export is empty, so files in it need no check for existing items.
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
        let extents = try skippingDamage(at: source, skipping) {
          try records.checkedExtents(of: file, at: StorePath.text(source))
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
      _ = try BulkWork(plan: plan, control: control, workers: store.workers).run {
        [store] context, pieces in
        for piece in pieces where damage.withLock({ $0[piece.file] }) == nil {
          let (path, file, unfinished, _) = files[piece.file]
          let plaintext: UnsafeRawBufferPointer
          do {
            plaintext = try Self.openPiece(piece, of: file, path: path, in: store, context: context)
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
      try store.workers.threads.forEach((whole.count + Self.filesPerFinish - 1) / Self.filesPerFinish) {
        _, index in
        for i in whole.dropFirst(index * Self.filesPerFinish).prefix(Self.filesPerFinish) {
          let (_, file, unfinished, _) = files[i]
          try output.finish(unfinished, size: file.inode.size, modified: file.inode.modified)
        }
      }
      let receipt = BulkReceipt(
        fileCount: whole.count, byteCount: whole.reduce(0) { $0 + files[$1].byteCount })
      // Make links last, so that no file is written through one.
      for item in items where item.file.inode.kind == .symbolicLink {
        try output.makeLink(place(item.names), to: item.file.inode.target, replacing: replacing)
      }
      return receipt
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
