import EncryptedFile
import SodiumPrimitives

/// A segment to be sealed.
private struct SealJob: Sendable {
  var batch: Int
  var place: SegmentCipher.Place
  /// New bytes; nil for what is left of a grain that was cut.
  var grain: DirtyGrain?
  /// The segment whose bytes stand where there are no new ones, as far as `baseCount`.
  var base: Extent?
  var baseCount = 0
}

/// A sealed run of one of the batches.
private struct StoredBatchRun: Sendable {
  var batch: Int
  var extent: Extent
}

extension Container {
  /// Puts everything that was written through open files into the catalog, in one commit, and waits for a writing back that is
  /// under way. Returns what is wrong with single files, whose changes stay in the cache; throws what stopped all of it.
  @discardableResult
  func writeBack(durability: Durability? = nil) throws -> [UInt64: any Error] {
    guard openFiles.hasChanges else { return [:] }
    // Wiped when nobody waits any more.
    var done: [FileNode.Batch] = []
    return try openFiles.writing.withLock { _ in try writeBackBatch(durability: durability, &done) }
  }

  /// Makes room in the cache for so many bytes.
  func makeRoom(for byteCount: Int, of node: FileNode) throws {
    guard openFiles.isFull(adding: byteCount) else { return }
    var done: [FileNode.Batch] = []
    try openFiles.writing.withLock { _ in
      // Somebody may have made room meanwhile.
      guard openFiles.isFull(adding: byteCount) else { return }
      if let failure = try writeBackBatch(durability: nil, &done)[node.id] { throw failure }
    }
  }

  /// `done` gets what was written back: letting go of it takes time.
  private func writeBackBatch(durability: Durability?, _ done: inout [FileNode.Batch]) throws -> [UInt64:
    any Error]
  {
    let batches = openFiles.nodes.compactMap { $0.freeze() }
    guard !batches.isEmpty else { return [:] }
    done = batches
    let failures = Guarded<[Int: any Error]>([:])
    var isStored = false
    do {
      try withStoredBytesKept {
        let jobs = planned(batches, failures)
        let stored = try seal(jobs, of: batches, failures)
        // Those whose file is damaged are not stored, nor what was sealed of them.
        let failed = failures.withLock { Set($0.keys) }
        let (useless, useful) = (
          stored.filter { failed.contains($0.batch) }, stored.filter { !failed.contains($0.batch) }
        )
        if !useless.isEmpty { slabs.discard(useless.map(\.extent)) }
        try commit(
          batches.indices.filter { !failed.contains($0) }, of: batches, stored: useful,
          durability: durability ?? (options.durability == .full ? .grouped : options.durability))
        isStored = true
      }
    } catch {
      if !isStored { for batch in batches { batch.node.restore(batch) } }
      throw (error as? IOFailure).map(ContainerError.from) ?? error
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
      try batch.node.loadExtents(of: self)
      map = batch.node.state.withLock { $0.map }
    }
    guard let map else { return [] }
    var indexes = batch.layer.grains.keys.sorted()
    // What is left of the segment at the cut is sealed anew: its other bytes must not come back when the file grows.
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
        batch: number, place: SegmentCipher.Place(index: index, length: length),
        grain: batch.layer.grains[index])
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
  ) throws -> [StoredBatchRun] {
    let unit = SegmentLayout.segmentsPerUnit
    let unitCount = (jobs.count + unit - 1) / unit
    let stored = Guarded<[StoredBatchRun]>([])
    let sealUnit: @Sendable (WorkerContext, Int) throws -> Void = { context, index in
      let part = jobs[(index * unit)..<min((index + 1) * unit, jobs.count)]
      let runs = try self.sealUnit(part, of: batches, failures, context: context)
      stored.withLock { $0 += runs }
    }
    do {
      if unitCount == 1 {
        try withContext { try sealUnit($0, 0) }
      } else {
        try workers.forEach(unitCount, sealUnit)
      }
    } catch {
      slabs.discard(stored.withLock { $0.map(\.extent) })
      throw error
    }
    return stored.withLock { $0 }
  }

  /// Seals up to 64 segments and stores them with one write.
  private func sealUnit(
    _ jobs: ArraySlice<SealJob>, of batches: [FileNode.Batch], _ failures: Guarded<[Int: any Error]>,
    context: WorkerContext
  ) throws -> [StoredBatchRun] {
    var runs: [StoredBatchRun] = []
    var count = 0
    var rest = jobs
    while let number = rest.first?.batch {
      let part = rest.prefix { $0.batch == number }
      rest = rest.dropFirst(part.count)
      guard failures.withLock({ $0[number] == nil }) else { continue }
      let byteCount = part.reduce(0) { $0 + $1.place.length + SegmentLayout.overheadByteCount }
      let first = session.take(part.count)
      do {
        try sealPart(
          part, of: batches[number].node, first, context: context,
          into: UnsafeMutableRawBufferPointer(rebasing: context.output[count..<(count + byteCount)]))
      } catch let error as SegmentError {
        failures.withLock { $0[number] = error }
        continue
      }
      var offset = UInt64(count)
      for (i, job) in part.enumerated() {
        let segment = Extent(
          start: job.place.index, count: 1, lastLength: UInt32(job.place.length),
          writeNumber: first.advanced(by: i), slab: 0, offset: offset)
        offset += UInt64(segment.storedByteCount)
        if let last = runs.last, last.batch == number, let joined = last.extent.joined(with: segment) {
          runs[runs.count - 1].extent = joined
        } else {
          runs.append(StoredBatchRun(batch: number, extent: segment))
        }
      }
      count += byteCount
    }
    guard count > 0 else { return [] }
    let place = try slabs.append(UnsafeRawBufferPointer(rebasing: context.output[0..<count]))
    return runs.map { run in
      var run = run
      run.extent.slab = place.slab
      run.extent.offset += place.offset
      return run
    }
  }

  private func sealPart(
    _ jobs: ArraySlice<SealJob>, of node: FileNode, _ first: WriteNumber, context: WorkerContext,
    into output: UnsafeMutableRawBufferPointer
  ) throws {
    let writerKey = try node.writerKey(first.session)
    // Behind the place where stored segments are read.
    let begin = (SegmentLayout.storedByteCountMax + 63) / 64 * 64
    let merged = UnsafeMutableRawBufferPointer(
      rebasing: context.input[begin..<(begin + DirtyGrain.byteCount)])
    try context.cipher.seal(
      jobs.lazy.map(\.place), key: node.key, writerKey: writerKey.key, counter: first.counter, into: output
    ) { i in
      let job = jobs[jobs.startIndex + i]
      let length = job.place.length
      if let grain = job.grain, grain.valid.covers(0..<length) {
        return UnsafeRawBufferPointer(rebasing: grain.bytes[0..<length])
      }
      var kept = 0
      if let base = job.base {
        kept = job.baseCount
        let plaintext = try node.open(base, of: self, context: context)
        merged.copyMemory(from: UnsafeRawBufferPointer(rebasing: plaintext[0..<kept]))
      }
      if kept < length {
        _ = UnsafeMutableRawBufferPointer(rebasing: merged[kept..<length])
          .initializeMemory(as: UInt8.self, repeating: 0)
      }
      job.grain?.forEach(in: 0..<length) { position, bytes in
        UnsafeMutableRawBufferPointer(rebasing: merged[position..<(position + bytes.count)])
          .copyMemory(from: bytes)
      }
      return UnsafeRawBufferPointer(rebasing: merged[0..<length])
    }
  }

  // MARK: Commit

  private func commit(
    _ numbers: [Int], of batches: [FileNode.Batch], stored: [StoredBatchRun], durability: Durability
  ) throws {
    var runs = [[Extent]](repeating: [], count: batches.count)
    for run in stored { runs[run.batch].append(run.extent) }
    for number in runs.indices { runs[number].sort { $0.start < $1.start } }
    var removed: [Int] = []
    try transaction(storing: stored.map(\.extent), durability: durability) { transaction in
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
      // In the transaction, so that no read takes old extents for valid once they can be freed.
      let finished = results
      transaction.whenApplied { for result in finished { result.node.finish(result.map, result.inode) } }
    }
    for number in removed { storeRemoved(batches[number], runs[number]) }
  }

  /// A file that has no name any more has no part in the catalog: only its open handles know what is stored of it.
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
    slabs.discard(garbage)
    release(committed)
  }

  /// The last handle of a file was closed: what is stored of it goes, if it was removed.
  func dispose(_ node: FileNode) {
    guard node.state.withLock({ $0.removed != nil }) else { return node.drop() }
    // A batch of it may be under way.
    openFiles.writing.withLock { _ in giveBack(node) }
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
    if !garbage.isEmpty { slabs.discard(garbage) }
    release(committed)
  }
}

extension FileNode.State {
  /// Of runs that a removed file gives up: what was in the catalog, and what never was. Pins keep the rest.
  fileprivate func split(_ runs: [Extent]) -> (committed: [Extent], garbage: [Extent]) {
    let (committed, rest) = (removed ?? ExtentMap()).parted(runs)
    return (committed, pinned.parted(rest).unknown)
  }
}

extension ExtentMap {
  /// Cuts, and puts the runs in; what each of both means for the catalog, in this order.
  fileprivate mutating func apply(_ layer: DirtyLayer, _ runs: [Extent]) -> [Change] {
    var changes: [Change] = []
    if layer.cut < .max {
      changes.append(remove(from: DirtyLayer.grain(layer.cut + UInt64(DirtyGrain.byteCount) - 1)))
    }
    changes.append(replace(with: runs))
    return changes
  }
}
