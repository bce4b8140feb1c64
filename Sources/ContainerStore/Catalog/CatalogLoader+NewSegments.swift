import EncryptedFile
import SodiumPrimitives

/// Verification of the segments that a commit names and that were not known to be durable.
extension CatalogLoader {
  /// Whether every segment opens that the commit names first. What the system does not read is no evidence against the commit, and
  /// costs the file that needs it.
  func segmentsOpen(of commit: FinishedCommit, on catalog: LoadedCatalog) throws -> Bool {
    let context = WorkerContext(ciphers.backend, in: ciphers.keys)
    let slabs = SlabStore(io: io, counters: [:], nextSlab: 0, startsWriteback: false)
    for (file, extents) in Dictionary(grouping: commit.fileExtents(), by: \.file) {
      // The file's earlier segments were durable once: damage to them now is no evidence against
      // this commit.
      guard let before = try before(file, on: catalog) else { continue }
      let key = CatalogKey.inode(file)
      let changed = commit.changes.last { $0.key == key }
      guard let inode = changed.map({ $0.value.flatMap { try? Inode($0) } }) ?? before.inode else { continue }
      for extent in before.runs.parted(extents.map(\.extent)).unknown {
        guard
          try opensIfRead(
            extent, keys.fileKey(file, epoch: inode.epoch, secret: inode.secret), slabs, context)
        else { return false }
      }
    }
    return try pinnedSegmentsOpen(of: commit, on: catalog, slabs, context)
  }

  /// Whether all segments of a run open that the system reads.
  private func opensIfRead(
    _ run: Extent, _ key: borrowing FileKey, _ slabs: SlabStore, _ context: WorkerContext
  ) throws -> Bool {
    do { return try verifyRun(run, key: key, slabs: slabs, context: context) == nil } catch let failure
      as IOFailure where failure.isOfFile
    {
      let half = Int(run.count) / 2
      guard half > 0 else { return true }
      return try opensIfRead(run.slice(skipping: 0, count: half), key, slabs, context)
        && opensIfRead(run.slice(skipping: half, count: Int(run.count) - half), key, slabs, context)
    }
  }

  /// The inode and the runs of a file before the commit. Returns nil where some of them is lost: nobody knows, then, which segments are new.
  private func before(
    _ file: UInt64, on catalog: LoadedCatalog
  ) throws -> (inode: Inode?, runs: ExtentMap)? {
    do {
      let known = try catalog.snapshot.runs(of: file)
      return (known?.inode, known?.runs ?? ExtentMap(checked: []))
    } catch  where TableFile.isLoss(error) {
      return nil
    }
  }

  /// Does the same for versions that the commit pins and that no file has any more: they were
  /// replaced in the same commit.
  private func pinnedSegmentsOpen(
    of commit: FinishedCommit, on catalog: LoadedCatalog, _ slabs: SlabStore, _ context: WorkerContext
  ) throws -> Bool {
    let pinned = commit.pinnedExtents()
    guard !pinned.isEmpty else { return true }
    let named = Dictionary(grouping: commit.fileExtents(), by: \.file).mapValues { extents in
      ExtentMap(checked: extents.map(\.extent).sorted { $0.start < $1.start })
    }
    for (pin, extents) in pinned {
      guard let before = try before(pin.file, on: catalog) else { continue }
      var new = before.runs.parted(extents).unknown
      if let named = named[pin.file] { new = named.parted(new).unknown }
      for extent in new {
        guard
          try opensIfRead(
            extent, keys.fileKey(pin.file, epoch: pin.inode.epoch, secret: pin.inode.secret), slabs, context)
        else { return false }
      }
    }
    return true
  }
}

/// Opens every segment of a run. Returns the error of the first segment that does not open, or nil;
/// throws a fault of the environment.
func verifyRun(
  _ extent: Extent, key: borrowing FileKey, slabs: SlabStore, context: WorkerContext
) throws -> SegmentError? {
  var skipped = 0
  while skipped < extent.count {
    let part = extent.slice(
      skipping: skipped, count: min(Int(extent.count) - skipped, SegmentLayout.segmentsPerUnit))
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<part.storedByteCount])
    let count = try slabs.read(part.slab, part.offset, into: stored)
    do throws(SegmentError) {
      try context.cipher.check(stored.bytes.extracting(first: count), of: part.run, key: key)
    } catch .crypto(let fault) {
      throw fault
    } catch {
      return error
    }
    skipped += Int(part.count)
  }
  return nil
}
