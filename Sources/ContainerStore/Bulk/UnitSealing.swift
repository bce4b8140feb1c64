import EncryptedFile
import SodiumPrimitives

/// Seals the units of a bulk operation for one store.
struct UnitSealing {
  let store: Store

  /// Seals the pieces of a unit, which `fill` copies into a buffer, and stores them with one write.
  func seal(
    _ pieces: [Piece], of files: NewFiles, context: WorkerContext,
    fill: (Piece, UnsafeMutableRawBufferPointer) throws -> Void
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    for piece in pieces {
      let plaintext = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<piece.byteCount])
      try fill(piece, plaintext)
      let key = try store.fileKey(files[piece.file])
      let number = store.session.take(Int(SegmentLayout.segmentCount(UInt64(piece.byteCount))))
      context.cipher.seal(
        UnsafeRawBufferPointer(plaintext), key: key, writerKey: try key.writerKey(session: number.session),
        index: piece.start, counter: number.counter,
        into: unit.space(SegmentLayout.storedByteCount(piece.byteCount)))
      unit.add(piece.extent(number), of: piece.file)
    }
    return try unit.append(to: store.slabs)
  }

  /// Opens the pieces of a unit from `source`, seals them for this store in the same step (see
  /// `SegmentCipher.reseal`), and stores them with one write. `checkInterval`: one segment of so
  /// many is opened again after sealing; 0 checks none.
  func reseal(
    _ pieces: [Piece], from source: Store, sources: [FoundFile], paths: [String], of files: NewFiles,
    checkInterval: Int, context: WorkerContext
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    for piece in pieces {
      let run = piece.source!  // planned from extents
      let from = sources[piece.file]
      let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<run.storedByteCount])
      let number = store.session.take(Int(run.count))
      let output = unit.space(SegmentLayout.storedByteCount(piece.byteCount))
      try source.namingPath(paths[piece.file]) {
        let count = try source.slabs.read(run.slab, run.offset, into: stored)
        let fromKey = try source.fileKey(from.id, from.inode)
        let toKey = try store.fileKey(files[piece.file])
        try context.cipher.reseal(
          run: run, stored: UnsafeRawBufferPointer(rebasing: stored[0..<count]),
          key: try fromKey.writerKey(session: run.writeNumber.session),
          to: SegmentCipher.Target(counter: number.counter, checkInterval: checkInterval),
          targetKey: toKey, targetWriterKey: try toKey.writerKey(session: number.session), into: output)
      }
      unit.add(piece.extent(number), of: piece.file)
    }
    return try unit.append(to: store.slabs)
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
  fileprivate func extent(_ number: WriteNumber) -> Extent {
    Extent(start: start, plaintextByteCount: byteCount, writeNumber: number)
  }
}
