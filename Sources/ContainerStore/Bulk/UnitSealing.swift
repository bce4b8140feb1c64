import EncryptedFile
import SodiumPrimitives

/// Seals the units of a bulk operation for one store.
struct UnitSealing {
  let store: Store

  /// Seals the pieces of a unit, which `fill` copies into a buffer, and stores them with one write. A
  /// piece for which `fill` returns false is left out.
  func seal(
    _ planned: Unit, of files: NewFiles, context: WorkerContext,
    fill: (Piece, UnsafeMutableRawBufferPointer) throws -> Bool
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    for piece in planned.pieces {
      let plaintext = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<piece.byteCount])
      guard try fill(piece, plaintext) else { continue }
      let run = piece.run(store.session.take(piece.segmentCount))
      var batch = try SegmentBatch(run, key: try store.fileKey(files[piece.file]), by: context.cipher)
      try unit.add(CollectionOfOne(run), of: piece.file) {
        try batch.seal(plaintext.bytes, as: run, into: &$0)
      }
    }
    return try unit.append(to: store.slabs, sharing: planned.slab)
  }

  /// Opens the pieces of a unit from `source`, seals them for this store in the same step (see
  /// `SegmentBatch.reseal`), and stores them with one write. `checkInterval`: one segment of so
  /// many is opened again after sealing; 0 checks none.
  func reseal(
    _ planned: Unit, from source: Store, sources: [FoundFile], paths: [String], of files: NewFiles,
    checkInterval: Int, context: WorkerContext
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    for piece in planned.pieces {
      let extent = piece.source!  // planned from extents
      let from = sources[piece.file]
      let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<extent.storedByteCount])
      let run = piece.run(store.session.take(piece.segmentCount))
      try source.namingPath(paths[piece.file]) {
        let count = try source.slabs.read(extent.slab, extent.offset, into: stored)
        var batch = try SegmentBatch(run, key: try store.fileKey(files[piece.file]), by: context.cipher)
        let key = try source.fileKey(from.id, from.inode)
        try unit.add(CollectionOfOne(run), of: piece.file) {
          try batch.reseal(
            stored.bytes.extracting(first: count), of: extent.run, key: key, checkInterval: checkInterval,
            into: &$0)
        }
      }
    }
    return try unit.append(to: store.slabs, sharing: planned.slab)
  }

  /// The inode of a file made from another one, with the same kind, size, permissions and date of
  /// modification.
  func inode(like inode: Inode, secret: [UInt8], now: Int64) -> Inode {
    var new = Inode(
      kind: .file, permissions: inode.permissions, now: now, epoch: store.epoch, secret: secret)
    new.size = inode.size
    new.modified = inode.modified
    return new
  }
}

extension Piece {
  fileprivate var segmentCount: Int { Int(SegmentLayout.segmentCount(UInt64(byteCount))) }

  fileprivate func run(_ number: WriteNumber) -> SegmentRun {
    SegmentRun(start: start, plaintextByteCount: byteCount, writeNumber: number)
  }
}
