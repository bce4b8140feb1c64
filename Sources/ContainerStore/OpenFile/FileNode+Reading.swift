import EncryptedFile
import SodiumPrimitives

/// The segment that a handle opened last, so that small reads in a row open each segment once.
struct OpenedSegment: Sendable {
  var index: UInt64 = 0
  /// Under which its bytes were sealed; no other bytes ever were.
  var writeNumber: WriteNumber?
  var count = 0
  var bytes: [UInt8] = []

  mutating func put(_ plaintext: UnsafeRawBufferPointer, _ segment: Extent) {
    if bytes.isEmpty { bytes = [UInt8](repeating: 0, count: DirtyGrain.byteCount) }
    bytes.withUnsafeMutableBytes { $0.copyMemory(from: plaintext) }
    count = plaintext.count
    index = segment.start
    writeNumber = segment.writeNumber
  }

  mutating func wipeBytes() {
    bytes.withUnsafeMutableBytes { wipe($0) }
    writeNumber = nil
  }
}

extension FileNode {
  /// What a read of a piece needs, taken at one moment.
  private struct Plan {
    var count: Int
    /// Runs to open, in order.
    var stored: [Extent] = []
    /// What is stored from here on was cut off.
    var cut = UInt64.max
    /// Newer bytes, to be copied over what was opened: position in the piece, range of `newerBytes`.
    var newer: [(position: Int, bytes: Range<Int>)] = []
    var newerBytes: [UInt8] = []
    /// The piece is in the caller's buffer already.
    var isDone = false
    var mustLoad = false
    var isCounted = false
  }

  /// Fills `buffer` from `offset` on and returns how many bytes there were. `buffer` must not go past a multiple of a unit (1 MiB).
  /// When it throws, `buffer` is untouched, unless `isScratch`: then what was opened before the damage may stand there.
  func read(
    at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, of container: Container,
    keeping opened: inout OpenedSegment, isScratch: Bool = false
  ) throws -> Int {
    // What the extents name now stays until the end, though it be replaced meanwhile.
    try container.withStoredBytesKept {
      var plan = plan(at: offset, into: buffer)
      while plan.mustLoad {
        try loadExtents(of: container)
        plan = self.plan(at: offset, into: buffer)
      }
      defer {
        if plan.isCounted { endRead(of: container) }
      }
      if plan.isDone { return plan.count }
      let target = UnsafeMutableRawBufferPointer(rebasing: buffer[0..<plan.count])
      let grain = DirtyLayer.grain(offset)
      if plan.newer.isEmpty, plan.cut == .max, plan.stored.count == 1, plan.stored[0].count == 1,
        grain == DirtyLayer.grain(offset + UInt64(plan.count) - 1)
      {
        try readSegment(plan.stored[0], at: offset, into: target, of: container, keeping: &opened)
      } else {
        try readRuns(plan, at: offset, into: target, of: container, isScratch: isScratch)
      }
      return plan.count
    }
  }

  /// Part of one segment.
  private func readSegment(
    _ segment: Extent, at offset: UInt64, into target: UnsafeMutableRawBufferPointer,
    of container: Container,
    keeping opened: inout OpenedSegment
  ) throws {
    let position = Int(offset % UInt64(DirtyGrain.byteCount))
    func copy(_ plaintext: UnsafeRawBufferPointer) {
      let end = min(position + target.count, plaintext.count)
      let count = max(0, end - position)
      if count > 0 { target.copyMemory(from: UnsafeRawBufferPointer(rebasing: plaintext[position..<end])) }
      if count < target.count {
        _ = UnsafeMutableRawBufferPointer(rebasing: target[count...])
          .initializeMemory(as: UInt8.self, repeating: 0)
      }
    }
    if opened.index == segment.start, opened.writeNumber == segment.writeNumber {
      opened.bytes.withUnsafeBytes { copy(UnsafeRawBufferPointer(rebasing: $0[0..<opened.count])) }
      return
    }
    try container.withContext { context in
      let plaintext = try open(segment, of: container, context: context)
      if target.count < plaintext.count { opened.put(plaintext, segment) }
      copy(plaintext)
    }
  }

  /// The plaintext of one segment, in the cipher's scratch memory until its next call. Uses the context's input.
  func open(_ segment: Extent, of container: Container, context: WorkerContext) throws
    -> UnsafeRawBufferPointer
  {
    let count = segment.storedByteCount
    let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<count])
    guard try container.slabs.read(segment.slab, segment.offset, into: stored) == count else {
      throw SegmentError.missingBytes(grain: segment.start)
    }
    return try context.cipher.open(
      UnsafeRawBufferPointer(stored), key: writerKey(segment.writeNumber.session).key,
      index: segment.start, counter: segment.writeNumber.counter)
  }

  private func readRuns(
    _ plan: Plan, at offset: UInt64, into target: UnsafeMutableRawBufferPointer, of container: Container,
    isScratch: Bool
  ) throws {
    let grainByteCount = UInt64(DirtyGrain.byteCount)
    let first = DirtyLayer.grain(offset)
    let skip = Int(offset - first * grainByteCount)
    try container.withContext { context in
      // Everything is opened here first; the caller's buffer is filled at the very end, or where it takes whole segments.
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
        let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<run.storedByteCount])
        let count = try container.slabs.read(run.slab, run.offset, into: stored)
        let end = begin + run.plaintextByteCount
        // A unit of grains at most, so the context's buffers are long enough.
        try context.cipher.open(
          run: run, stored: UnsafeRawBufferPointer(rebasing: stored[0..<count]),
          key: writerKey(run.writeNumber.session).key,
          into: UnsafeMutableRawBufferPointer(rebasing: memory[begin..<end]))
        position = end
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

  private func endRead(of container: Container) {
    let garbage = state.withLock { state -> [Extent] in
      state.readCount -= 1
      guard state.readCount == 0 else { return [] }
      defer { state.garbage = [] }
      return state.garbage
    }
    if !garbage.isEmpty { container.slabs.discard(garbage) }
  }

  /// Asks the catalog for the extents, unless somebody did meanwhile.
  func loadExtents(of container: Container) throws {
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
          // A compaction moves runs faster than a file of many is read. What the reading has seen already is not found any more.
          for (old, places) in state.movesWhileLoading { _ = map.move(old, to: places) }
          state.map = map
        }
        state.loaderCount -= 1
        if state.loaderCount == 0 { state.movesWhileLoading = [] }
      }
    }
    do {
      loaded = try container.withStoredCatalog { records in
        let inode = try records.inode(id)
        return ExtentMap(
          checked: try EncryptedFileReader.checked(records.extents(id, inode), size: inode.size))
      }
    } catch {
      // Removed meanwhile: then its extents were handed over.
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

  /// Whether newer bytes make the stored ones unnecessary.
  fileprivate func isCovered(_ grain: UInt64, at offset: UInt64, count: Int) -> Bool {
    let part = part(of: grain, at: offset, count: count)
    if dirty.grains[grain]?.valid.covers(part) == true { return true }
    guard let beneath = frozen?.grains[grain], beneath.valid.covers(part) else { return false }
    return dirty.cut == .max || dirty.cut >= grain * UInt64(DirtyGrain.byteCount) + UInt64(part.upperBound)
  }

  /// Hands out newer bytes, older layer first, with their positions behind `offset`.
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
