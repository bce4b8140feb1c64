import EncryptedFile
import SodiumPrimitives

extension FileNode {
  /// The input of a read of a piece, all of it from one moment.
  private struct Plan {
    var count: Int
    /// Runs to open, in order.
    var stored: [Extent] = []
    /// Offset from which the stored bytes were cut off.
    var cut = UInt64.max
    /// Newer bytes to copy over the opened ones: position in the piece, and range of `newerBytes`.
    var newer: [(position: Int, bytes: Range<Int>)] = []
    var newerBytes: [UInt8] = []
    /// The piece is already in the caller's buffer.
    var isDone = false
    var mustLoad = false
    var isCounted = false
  }

  /// Fills `buffer` from `offset` on and returns the number of bytes read. `buffer` must not extend
  /// past a multiple of the unit size (1 MiB). When the call throws, `buffer` is unchanged, unless
  /// `isScratch` is set: then it may contain bytes that were opened before the damage.
  func read(
    at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, of store: Store,
    keeping opened: inout OpenedSegment, isScratch: Bool = false
  ) throws -> Int {
    // Keep the runs that the extents name now until the end, even if they are replaced meanwhile.
    try store.withRunsKept {
      var plan = plan(at: offset, into: buffer)
      while plan.mustLoad {
        try loadExtents(of: store)
        plan = self.plan(at: offset, into: buffer)
      }
      defer {
        if plan.isCounted { endRead(of: store) }
      }
      if plan.isDone { return plan.count }
      let target = UnsafeMutableRawBufferPointer(rebasing: buffer[0..<plan.count])
      let grain = DirtyLayer.grain(offset)
      if plan.newer.isEmpty, plan.cut == .max, plan.stored.count == 1, plan.stored[0].count == 1,
        grain == DirtyLayer.grain(offset + UInt64(plan.count) - 1)
      {
        try readSegment(plan.stored[0], at: offset, into: target, of: store, keeping: &opened)
      } else {
        try readRuns(plan, at: offset, into: target, of: store, isScratch: isScratch)
      }
      return plan.count
    }
  }

  /// Copies a part of one segment.
  private func readSegment(
    _ segment: Extent, at offset: UInt64, into target: UnsafeMutableRawBufferPointer,
    of store: Store, keeping opened: inout OpenedSegment
  ) throws {
    let position = Int(offset % UInt64(DirtyGrain.byteCount))
    let length = Int(segment.lastLength)
    let end = max(position, min(position + target.count, length))
    let isKept = opened.index == segment.start && opened.writeNumber == segment.writeNumber
    if !isKept, position == 0, target.count >= length {
      // The read takes the whole segment, so it need not be kept for the next one.
      try store.workers.withContext { context in
        var output = OutputRawSpan(buffer: target, initializedCount: 0)
        try open(segment, of: store, context: context, into: &output)
      }
    } else {
      if !isKept {
        try store.workers.withContext { context in
          try opened.fill(with: segment.run) {
            try open(segment, of: store, context: context, into: &$0)
          }
        }
      }
      opened.bytes.withUnsafeBytes {
        target.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[position..<end]))
      }
    }
    _ = UnsafeMutableRawBufferPointer(rebasing: target[(end - position)...])
      .initializeMemory(as: UInt8.self, repeating: 0)
  }

  /// Opens a run, and appends its plaintext to `output`. The call uses the context's input
  /// buffer.
  func open(
    _ extent: Extent, of store: Store, context: WorkerContext, into output: inout OutputRawSpan
  ) throws {
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<extent.storedByteCount])
    let count = try store.slabs.read(extent.slab, extent.offset, into: stored)
    try context.cipher.open(
      stored.bytes.extracting(first: count), of: extent.run, key: key, into: &output)
  }

  private func readRuns(
    _ plan: Plan, at offset: UInt64, into target: UnsafeMutableRawBufferPointer, of store: Store,
    isScratch: Bool
  ) throws {
    let grainByteCount = UInt64(DirtyGrain.byteCount)
    let first = DirtyLayer.grain(offset)
    let skip = Int(offset - first * grainByteCount)
    try store.workers.withContext { context in
      // Everything is opened in the context's buffer, and the caller's buffer is filled at the very
      // end. If it is scratch memory and takes whole segments, they are opened directly into it.
      let isDirect =
        isScratch && skip == 0
        && plan.stored.allSatisfy {
          Int($0.start - first) * DirtyGrain.byteCount + $0.plaintextByteCount <= target.count
        }
      let memory = isDirect ? target : context.output
      let plaintext = UnsafeMutableRawBufferPointer(rebasing: memory[0..<(skip + target.count)])
      func clear(_ range: Range<Int>) {
        let range = range.clamped(to: 0..<plaintext.count)
        guard !range.isEmpty else { return }
        _ = UnsafeMutableRawBufferPointer(rebasing: plaintext[range])
          .initializeMemory(as: UInt8.self, repeating: 0)
      }
      var position = 0
      for run in plan.stored {
        let begin = Int(run.start - first) * DirtyGrain.byteCount
        clear(position..<max(position, begin))
        position = begin + run.plaintextByteCount
        // A run has at most the grains of a unit, so the context's buffers are large enough.
        var output = OutputRawSpan(buffer: memory[begin..<position], initializedCount: 0)
        try open(run, of: store, context: context, into: &output)
      }
      clear(min(position, plaintext.count)..<plaintext.count)
      if plan.cut < offset + UInt64(target.count) {
        let cut = plan.cut > first * grainByteCount ? Int(plan.cut - first * grainByteCount) : 0
        clear(cut..<plaintext.count)
      }
      for piece in plan.newer {
        plan.newerBytes.withUnsafeBytes {
          let begin = skip + piece.position
          UnsafeMutableRawBufferPointer(rebasing: plaintext[begin..<(begin + piece.bytes.count)])
            .copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[piece.bytes]))
        }
      }
      if !isDirect { target.copyMemory(from: UnsafeRawBufferPointer(rebasing: plaintext[skip...])) }
    }
  }

  // MARK: Planning

  private func plan(at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) -> Plan {
    state.withLock { state in
      guard offset < state.size, !buffer.isEmpty else { return Plan(count: 0, isDone: true) }
      var plan = Plan(count: Int(min(UInt64(buffer.count), state.size - offset)))
      let grains = DirtyLayer.grain(offset)..<(DirtyLayer.grain(offset + UInt64(plan.count) - 1) + 1)
      let hasNewer = !state.dirty.grains.isEmpty || state.frozen?.grains.isEmpty == false
      let isCovered = hasNewer && grains.allSatisfy { state.isCovered($0, at: offset, count: plan.count) }
      if !isCovered {
        guard let map = state.map else {
          plan.mustLoad = true
          return plan
        }
        plan.cut = min(state.dirty.cut, state.frozen?.cut ?? .max)
        let kept =
          plan.cut == .max ? UInt64.max : DirtyLayer.grain(plan.cut + UInt64(DirtyGrain.byteCount) - 1)
        if grains.lowerBound < kept {
          plan.stored = map.slices(grains.lowerBound..<min(grains.upperBound, kept))
        }
      }
      let target = UnsafeMutableRawBufferPointer(rebasing: buffer[0..<plan.count])
      if plan.stored.isEmpty {
        _ = target.initializeMemory(as: UInt8.self, repeating: 0)
        plan.isDone = true
      }
      if hasNewer {
        for grain in grains {
          state.forEachNewer(in: grain, at: offset, count: plan.count) { position, bytes in
            if plan.isDone {
              UnsafeMutableRawBufferPointer(rebasing: target[position..<(position + bytes.count)])
                .copyMemory(from: bytes)
            } else {
              let begin = plan.newerBytes.count
              plan.newerBytes.append(contentsOf: bytes)
              plan.newer.append((position, begin..<plan.newerBytes.count))
            }
          }
        }
      }
      if !plan.isDone, state.removed != nil {
        state.readCount += 1
        plan.isCounted = true
      }
      return plan
    }
  }

  private func endRead(of store: Store) {
    let garbage = state.withLock { state -> [Extent] in
      state.readCount -= 1
      guard state.readCount == 0 else { return [] }
      defer { state.garbage = [] }
      return state.garbage
    }
    if !garbage.isEmpty { store.slabs.discard(garbage) }
  }

  /// Loads the extents from the catalog, unless another thread has done so meanwhile.
  func loadExtents(of store: Store) throws {
    let version = state.withLock { state -> Int? in
      guard state.map == nil else { return nil }
      state.loaderCount += 1
      return state.mapVersion
    }
    guard let version else { return }
    var loaded: ExtentMap?
    defer {
      state.withLock { state in
        if state.map == nil, state.mapVersion == version, var map = loaded {
          // A compaction moves runs while the extents of a file with many are read. Moves that the
          // loaded extents already include find no match here.
          for (old, places) in state.movesWhileLoading { _ = map.move(old, to: places) }
          state.map = map
        }
        state.loaderCount -= 1
        if state.loaderCount == 0 { state.movesWhileLoading = [] }
      }
    }
    do {
      loaded = try store.withSnapshot { records in
        let inode = try records.inode(id)
        return ExtentMap(
          checked: try EncryptedFileReader.checked(records.extents(id, inode), size: inode.size))
      }
    } catch {
      // If the file was removed meanwhile, its extents were handed to this node.
      if state.withLock({ $0.removed != nil }) { return }
      throw error
    }
  }
}

extension FileNode.State {
  /// The part of a grain that lies in `count` bytes from `offset` on.
  private func part(of grain: UInt64, at offset: UInt64, count: Int) -> Range<Int> {
    let start = grain * UInt64(DirtyGrain.byteCount)
    let begin = offset > start ? Int(offset - start) : 0
    return begin..<Int(min(UInt64(DirtyGrain.byteCount), offset + UInt64(count) - start))
  }

  /// Whether newer bytes cover the requested part of a grain, so that no stored bytes are needed.
  fileprivate func isCovered(_ grain: UInt64, at offset: UInt64, count: Int) -> Bool {
    let part = part(of: grain, at: offset, count: count)
    if dirty.grains[grain]?.valid.covers(part) == true { return true }
    guard let beneath = frozen?.grains[grain], beneath.valid.covers(part) else { return false }
    return dirty.cut == .max || dirty.cut >= grain * UInt64(DirtyGrain.byteCount) + UInt64(part.upperBound)
  }

  /// Passes newer bytes to `body`, the older layer first, with positions relative to `offset`.
  fileprivate func forEachNewer(
    in grain: UInt64, at offset: UInt64, count: Int, _ body: (Int, UnsafeRawBufferPointer) -> Void
  ) {
    let part = part(of: grain, at: offset, count: count)
    let start = grain * UInt64(DirtyGrain.byteCount)
    let shift = Int(Int64(bitPattern: start &- offset))
    if let beneath = frozen?.grains[grain], dirty.cut > start {
      let end = Int(min(dirty.cut - start, UInt64(DirtyGrain.byteCount)))
      beneath.forEach(in: part.clamped(to: 0..<end)) { body($0 + shift, $1) }
    }
    dirty.grains[grain]?.forEach(in: part) { body($0 + shift, $1) }
  }
}
