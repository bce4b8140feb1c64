import EncryptedFile
import Locks
import SodiumPrimitives

/// A segment to be sealed.
private struct SealJob: Sendable {
  var batch: Int
  /// The grain, and the bytes of it that are sealed, 1 … 16384.
  var index: UInt64
  var length: Int
  /// New bytes; nil for the remainder of a grain that was cut.
  var grain: DirtyGrain?
  /// The stored segment that supplies bytes where there are no new ones, up to `baseCount`.
  var base: Extent?
  var baseCount = 0
}

/// Stores bytes written through open files: changes are sealed, appended to slabs, and named in the
/// catalog in one commit.
struct WriteBack: Sendable {
  let store: Store
  let files: OpenFiles

  /// Stores all bytes written through open files, after a write-back in progress has ended. Returns
  /// the errors of single files, whose changes stay in the cache; throws an error that stopped the
  /// whole write-back.
  @discardableResult
  func run(durability: ContainerDurability? = nil) throws -> [UInt64: any Error] {
    guard files.hasChanges else { return [:] }
    // Declared outside the lock: the grains are wiped when no thread waits for the lock any more.
    var done: [FileNode.Batch] = []
    return try store.reportingIO {
      try files.writing.withLock { _ in try runAlone(durability: durability, &done) }
    }
  }

  /// Stores changes as far as there is room, unless a failed write made the container read-only.
  func runIfPossible() throws {
    do { try run() } catch ContainerError.readOnly {} catch ContainerError.diskFull {}
  }

  /// Stores changes, and then calls `body` with the resulting catalog. Changes of files that could
  /// not be stored because of damage are missing in it. On a full disk, reads of files with
  /// unstored changes throw `diskFull`; everything else can be read.
  func withWrittenBackSnapshot<R>(
    settled: Bool = false, _ body: (CatalogSnapshot) throws -> R
  ) throws -> R {
    do { try run() } catch ContainerError.readOnly {
      // After a failed write the container is read-only and shows the state on the disk.
    } catch ContainerError.diskFull {
      let unstored = files.changedFiles
      return try store.withSnapshot(settled: settled) { snapshot in
        var snapshot = snapshot
        snapshot.unstored = unstored
        return try body(snapshot)
      }
    }
    return try store.withSnapshot(settled: settled, body)
  }

  /// Makes room in the cache for `byteCount` more bytes.
  func makeRoom(for byteCount: Int, of node: FileNode) throws {
    guard files.isFull(adding: byteCount) else { return }
    var done: [FileNode.Batch] = []
    try files.writing.withLock { _ in
      // Another thread may have made room meanwhile.
      guard files.isFull(adding: byteCount) else { return }
      if let failure = try runAlone(durability: nil, &done)[node.id] { throw failure }
    }
  }

  /// Stores all changes. `done` receives the batches, so that the caller can release them later:
  /// releasing takes time.
  private func runAlone(
    durability: ContainerDurability?, _ done: inout [FileNode.Batch]
  ) throws -> [UInt64: any Error] {
    let batches = files.nodes.compactMap { $0.freeze() }
    guard !batches.isEmpty else { return [:] }
    done = batches
    let failures = Guarded<[Int: any Error]>([:])
    var isStored = false
    do {
      try store.withRunsKept {
        let jobs = planned(batches, failures)
        let stored = try seal(jobs, of: batches, failures)
        // Nothing of a damaged file is stored; runs of it that were sealed already are discarded.
        let failed = failures.withLock { Set($0.keys) }
        let (useless, useful) = (
          stored.filter { failed.contains($0.owner) }, stored.filter { !failed.contains($0.owner) }
        )
        if !useless.isEmpty { store.slabs.discard(useless.map(\.extent)) }
        try commit(
          batches.indices.filter { !failed.contains($0) }, of: batches, stored: useful,
          durability: durability ?? store.soon)
        isStored = true
      }
    } catch {
      if !isStored { for batch in batches { batch.node.restore(batch) } }
      throw error
    }
    return failures.withLock { failures in
      for (index, _) in failures { batches[index].node.restore(batches[index]) }
      return Dictionary(uniqueKeysWithValues: failures.map { (batches[$0.key].node.id, $0.value) })
    }
  }

  // MARK: Plan

  private func planned(_ batches: [FileNode.Batch], _ failures: Guarded<[Int: any Error]>) -> [SealJob] {
    var jobs: [SealJob] = []
    for (index, batch) in batches.enumerated() {
      do {
        jobs += try planned(batch, index)
      } catch {
        failures.withLock { $0[index] = error }
      }
    }
    return jobs
  }

  private func planned(_ batch: FileNode.Batch, _ number: Int) throws -> [SealJob] {
    let grainByteCount = UInt64(DirtyGrain.byteCount)
    var map: ExtentMap?
    while map == nil {
      try batch.node.loadExtents(of: store)
      map = batch.node.state.withLock { $0.map }
    }
    guard let map else { return [] }
    var indexes = batch.layer.grains.keys.sorted()
    // The rest of the segment at the cut is sealed anew: its bytes behind the cut must not reappear
    // when the file grows.
    let boundary = DirtyLayer.grain(batch.layer.cut)
    if batch.layer.cut < .max, batch.layer.grains[boundary] == nil, let segment = map.segment(boundary),
      batch.layer.cut > boundary * grainByteCount,
      boundary * grainByteCount + UInt64(segment.lastLength) > batch.layer.cut
    {
      indexes.insert(boundary, at: indexes.firstIndex { $0 > boundary } ?? indexes.count)
    }
    return indexes.map { index in
      let start = index * grainByteCount
      let length = Int(min(grainByteCount, batch.size - start))
      var job = SealJob(
        batch: number, index: index, length: length, grain: batch.layer.grains[index])
      if job.grain?.valid.covers(0..<length) != true, start < batch.layer.cut,
        let segment = map.segment(index)
      {
        job.base = segment
        job.baseCount = Int(min(UInt64(segment.lastLength), batch.layer.cut - start, UInt64(length)))
      }
      return job
    }
  }

  // MARK: Seal

  private func seal(
    _ jobs: [SealJob], of batches: [FileNode.Batch], _ failures: Guarded<[Int: any Error]>
  ) throws -> [StoredRun] {
    let unit = SegmentLayout.segmentsPerUnit
    let unitCount = (jobs.count + unit - 1) / unit
    let stored = Guarded<[StoredRun]>([])
    let sealUnit: @Sendable (WorkerContext, Int) throws -> Void = { context, index in
      let part = jobs[(index * unit)..<min((index + 1) * unit, jobs.count)]
      let runs = try self.sealUnit(part, of: batches, failures, context: context)
      stored.withLock { $0 += runs }
    }
    do {
      if unitCount == 1 {
        try store.workers.withContext { try sealUnit($0, 0) }
      } else {
        try store.workers.threads.forEach(unitCount, sealUnit)
      }
    } catch {
      store.slabs.discard(stored.withLock { $0.map(\.extent) })
      throw error
    }
    return stored.withLock { $0 }
  }

  /// Seals up to 64 segments and stores them with one write. The owner of each run is the index of
  /// its batch.
  private func sealUnit(
    _ jobs: ArraySlice<SealJob>, of batches: [FileNode.Batch], _ failures: Guarded<[Int: any Error]>,
    context: WorkerContext
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    var rest = jobs
    while let number = rest.first?.batch {
      let part = rest.prefix { $0.batch == number }
      rest = rest.dropFirst(part.count)
      guard failures.withLock({ $0[number] == nil }) else { continue }
      do {
        let runs = runs(of: part)
        try unit.add(runs, of: number) {
          try seal(part, as: runs, of: batches[number].node, into: &$0, context: context)
        }
      } catch SegmentError.crypto(let fault) {
        throw fault
      } catch let error as SegmentError {
        failures.withLock { $0[number] = error }
      }
    }
    return try unit.append(to: store.slabs)
  }

  /// A run for each job, with consecutive write numbers.
  private func runs(of jobs: ArraySlice<SealJob>) -> [SegmentRun] {
    let first = store.session.take(jobs.count)
    return jobs.enumerated().map { i, job in
      SegmentRun(start: job.index, plaintextByteCount: job.length, writeNumber: first.advanced(by: i))
    }
  }

  /// Seals segments of one file back to back as one batch.
  private func seal(
    _ jobs: ArraySlice<SealJob>, as runs: [SegmentRun], of node: FileNode, into output: inout OutputRawSpan,
    context: WorkerContext
  ) throws {
    var batch = try SegmentBatch(runs.count, from: runs[0], key: node.key, by: context.cipher)
    for (job, run) in zip(jobs, runs) {
      let plaintext = try plaintext(of: job, in: node, context: context)
      try batch.seal(plaintext.bytes, as: run, into: &output)
    }
  }

  /// The bytes of a segment to be sealed, in the grain or in the context's input buffer.
  private func plaintext(
    of job: SealJob, in node: FileNode, context: WorkerContext
  ) throws -> UnsafeRawBufferPointer {
    if let grain = job.grain, grain.valid.covers(0..<job.length) {
      return UnsafeRawBufferPointer(rebasing: grain.bytes[0..<job.length])
    }
    // Use the memory behind the area into which stored segments are read.
    let begin = (SegmentLayout.storedByteCountMax + 63) / 64 * 64
    let merged = UnsafeMutableRawBufferPointer(
      rebasing: context.input[begin..<(begin + DirtyGrain.byteCount)])
    if let base = job.base {
      var output = OutputRawSpan(buffer: merged, initializedCount: 0)
      try node.open(base, of: store, context: context, into: &output)
    }
    if job.baseCount < job.length {
      _ = UnsafeMutableRawBufferPointer(rebasing: merged[job.baseCount..<job.length])
        .initializeMemory(as: UInt8.self, repeating: 0)
    }
    job.grain?.forEach(in: 0..<job.length) { position, bytes in
      UnsafeMutableRawBufferPointer(rebasing: merged[position..<(position + bytes.count)])
        .copyMemory(from: bytes)
    }
    return UnsafeRawBufferPointer(rebasing: merged[0..<job.length])
  }

  // MARK: Commit

  private func commit(
    _ numbers: [Int], of batches: [FileNode.Batch], stored: [StoredRun], durability: ContainerDurability
  ) throws {
    var runs = [[Extent]](repeating: [], count: batches.count)
    for run in stored { runs[run.owner].append(run.extent) }
    for number in runs.indices { runs[number].sort { $0.start < $1.start } }
    var removed: [Int] = []
    try store.transaction(storing: stored.map(\.extent), durability: durability) { transaction in
      var results: [(node: FileNode, map: ExtentMap, inode: Inode)] = []
      for number in numbers {
        let node = batches[number].node
        let (isRemoved, known) = node.state.withLock { ($0.removed != nil, $0.map) }
        if isRemoved {
          removed.append(number)
          continue
        }
        var inode = try transaction.inode(node.id)
        var map =
          try known
          ?? ExtentMap(
            checked: EncryptedFileReader.checked(
              transaction.extents(node.id, inode), size: inode.size))
        let changes = map.apply(batches[number].layer, runs[number])
        inode.size = batches[number].size
        inode.firstExtent = map.first
        inode.modified = batches[number].layer.modified
        inode.changed = max(inode.changed, batches[number].layer.modified)
        try transaction.exchange(node.id, inode, changes, storing: runs[number])
        results.append((node, map, inode))
      }
      // The nodes get the new extents within the transaction, so that no read uses old ones after
      // they may be freed.
      let finished = results
      transaction.whenApplied { for result in finished { result.node.finish(result.map, result.inode) } }
    }
    for number in removed { storeRemoved(batches[number], runs[number]) }
  }

  /// Stores a batch of a removed file. The catalog has no record of the file; only the node of its
  /// open handles has its extents.
  private func storeRemoved(_ batch: FileNode.Batch, _ runs: [Extent]) {
    guard var map = batch.node.state.withLock({ $0.map }) else { return }
    let gone = map.apply(batch.layer, runs).flatMap(\.removed)
    batch.node.finish(map)
    let (committed, garbage) = batch.node.state.withLock { state in
      let (committed, garbage) = state.split(gone)
      guard state.readCount > 0 else { return (committed, garbage) }
      state.garbage += garbage
      return (committed, [])
    }
    store.slabs.discard(garbage)
    store.release(committed)
  }

  /// Disposes of a node after its last handle was closed: if the file was removed, its runs are
  /// freed.
  func dispose(_ node: FileNode) {
    guard node.state.withLock({ $0.removed != nil }) else { return node.drop() }
    // A batch of the file may be in progress.
    files.writing.withLock { _ in giveBack(node) }
  }

  private func giveBack(_ node: FileNode) {
    node.drop()
    let (committed, garbage) = node.state.withLock { state -> ([Extent], [Extent]) in
      guard state.removed != nil, let map = state.map else { return ([], []) }
      let (committed, garbage) = state.split(map.extents)
      state.map = ExtentMap()
      guard state.readCount > 0 else { return (committed, garbage + state.garbage) }
      state.garbage += garbage
      return (committed, [])
    }
    if !garbage.isEmpty { store.slabs.discard(garbage) }
    store.release(committed)
  }
}

extension FileNode.State {
  /// Splits runs that a removed file gives up into those that the catalog had and those that it
  /// never had. Runs that pins keep are in neither.
  fileprivate func split(_ runs: [Extent]) -> (committed: [Extent], garbage: [Extent]) {
    let (committed, rest) = (removed ?? ExtentMap()).parted(runs)
    return (committed, pinned.parted(rest).unknown)
  }
}

extension ExtentMap {
  /// Applies a layer's cut and then its runs, and returns the catalog changes of both in this
  /// order.
  fileprivate mutating func apply(_ layer: DirtyLayer, _ runs: [Extent]) -> [Change] {
    var changes: [Change] = []
    if layer.cut < .max {
      changes.append(remove(from: DirtyLayer.grain(layer.cut + UInt64(DirtyGrain.byteCount) - 1)))
    }
    changes.append(replace(with: runs))
    return changes
  }
}
