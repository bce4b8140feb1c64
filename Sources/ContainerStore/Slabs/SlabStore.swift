import Dispatch
import EncryptedFile

/// Appends sealed runs to slabs and reads them back.
///
/// Each concurrent writer gets a slab of its own, since writes to one file wait for one another in the kernel.
final class SlabStore: Sendable {
  static let byteCountMax: UInt64 = 64 << 20
  static let alignment: UInt64 = 4096
  private static let openFileCountMax = 128
  /// A hole costs a file system some 0.2 ms and leaves its file in pieces: smaller ones wait until their neighbours are dead too, or
  /// for ``punchHoles()``.
  private static let holeByteCountMinAtOnce: UInt64 = 1 << 20
  /// Smaller ones wait until their neighbours are dead too, or for compaction.
  private static let holeByteCountMin: UInt64 = 64 << 10
  /// Blocks given ahead make large writes a tenth cheaper on ext4; for small ones it would be more work.
  private static let preallocatedByteCountMin: UInt64 = 16 << 20

  private struct Slab {
    var counter = SlabCounter()
    /// Where the next run goes.
    var position: UInt64
    /// Bytes written and neither committed nor discarded.
    var outstanding: UInt64 = 0
    /// The file may be longer than what was written.
    var isPreallocated = false
    /// Nothing is appended: it is being emptied.
    var isRetired = false
    var dead = DeadRanges()
    /// Somebody appends to it or cuts it, and makes it idle again afterwards.
    var isTaken = false
    /// Bytes of holes; nil when nobody has looked yet.
    var punchedByteCount: UInt64?
    /// Open for writing, from the first write until the slab is full and durable.
    var file: (any BlockFile)?
  }

  private struct State {
    var slabs: [UInt32: Slab] = [:]
    /// Slabs with room that nobody writes to at the moment; the last one is used first.
    var idle: [UInt32] = []
    var nextSlab: UInt32
    /// Open for reading.
    var files: [UInt32: any BlockFile] = [:]
    var unsynchronized: Set<UInt32> = []
    var directoryIsUnsynchronized = false
    /// Of the bulk operations that are under way, in all.
    var expectedByteCount: UInt64 = 0
    var isClosed = false
  }

  private let io: any BlockIO
  private let state: Guarded<State>
  /// Held while a sync is under way; why one failed.
  private let synchronizing = Guarded<IOFailure?>(nil)
  /// Appending and giving back: closing waits for them.
  private let changes = DispatchGroup()
  /// Whether to begin writing back at once, so that the final barrier is short.
  let startsWriteback: Bool

  init(io: any BlockIO, counters: [UInt32: SlabCounter], nextSlab: UInt32, startsWriteback: Bool) {
    self.io = io
    self.startsWriteback = startsWriteback
    var state = State(nextSlab: nextSlab)
    for (number, counter) in counters {
      state.slabs[number] = Slab(counter: counter, position: Self.alignedUp(counter.end))
    }
    // The fullest last: it is used first.
    state.idle = counters.filter { Self.alignedUp($0.value.end) < Self.byteCountMax }
      .sorted { ($0.value.end, $0.key) < ($1.value.end, $1.key) }.map(\.key)
    self.state = Guarded(state)
  }

  static func name(_ slab: UInt32) -> String {
    let digits = String(slab, radix: 16)
    return "slab/" + String(repeating: "0", count: 8 - digits.count) + digits
  }

  /// The slab whose file has that name in `slab/`; nil when it is no slab's.
  static func number(_ fileName: String) -> UInt32? {
    guard let slab = UInt32(fileName, radix: 16), name(slab) == "slab/" + fileName else { return nil }
    return slab
  }

  static func alignedUp(_ offset: UInt64) -> UInt64 { (offset + alignment - 1) / alignment * alignment }

  var nextSlab: UInt32 { state.withLock { $0.nextSlab } }

  /// Whether the slab has, or is about to get, bytes that count.
  func knows(_ slab: UInt32) -> Bool { state.withLock { $0.slabs[slab] != nil } }

  // MARK: Closing

  /// From now on nothing is appended and nothing given back, and what was begun is done when this returns.
  func close() {
    state.withLock { $0.isClosed = true }
    changes.wait()
  }

  /// False when the store is closed; else ``endChange()`` must follow.
  private func beginChange() -> Bool {
    state.withLock { state in
      if !state.isClosed { changes.enter() }
      return !state.isClosed
    }
  }

  private func endChange() { changes.leave() }

  // MARK: Reading

  /// Fills the buffer as far as the slab reaches; a slab that is missing has no bytes.
  func read(_ slab: UInt32, _ offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(IOFailure)
    -> Int
  {
    try fileIfThere(slab)?.read(into: buffer, at: offset) ?? 0
  }

  /// Nil when the slab is missing.
  func size(_ slab: UInt32) throws(IOFailure) -> UInt64? { try fileIfThere(slab)?.size() }

  /// Nil when the slab is missing, or something that is no regular file has its name.
  private func fileIfThere(_ slab: UInt32) throws(IOFailure) -> (any BlockFile)? {
    do { return try file(slab) } catch {
      guard absentFile.contains(error.errno) else { throw error }
      return nil
    }
  }

  func file(_ slab: UInt32) throws(IOFailure) -> any BlockFile {
    if let file = state.withLock({ $0.slabs[slab]?.file ?? $0.files[slab] }) { return file }
    let file = try io.open(Self.name(slab), .read)
    state.withLock { state in
      if state.files.count >= Self.openFileCountMax {
        state.files.removeValue(forKey: state.files.keys.first!)
      }
      state.files[slab] = file
    }
    return file
  }

  // MARK: Writing

  /// Appends a run, or several back to back. Until ``settle(_:)`` or ``discard(_:)`` it counts as outstanding.
  func append(_ bytes: UnsafeRawBufferPointer) throws(IOFailure) -> (slab: UInt32, offset: UInt64) {
    guard beginChange() else { throw IOFailure("write", "a closed container", errno: closedFile) }
    defer { endChange() }
    let count = UInt64(bytes.count)
    var (number, offset, isNew) = state.withLock { state -> (UInt32, UInt64, Bool) in
      let fitting = state.idle.lastIndex { state.slabs[$0]!.position + count <= Self.byteCountMax }
      if let fitting {
        let number = state.idle.remove(at: fitting)
        let offset = state.slabs[number]!.position
        state.slabs[number]!.position += count
        state.slabs[number]!.outstanding += count
        state.slabs[number]!.isTaken = true
        return (number, offset, false)
      }
      let number = state.nextSlab
      state.nextSlab += 1
      state.slabs[number] = Slab(
        position: count, outstanding: count, isTaken: true, punchedByteCount: 0)
      // The other writers have slabs of their own, so the last ones stay partly empty; they are cut at the end.
      state.slabs[number]!.isPreallocated = state.expectedByteCount >= Self.preallocatedByteCountMin
      return (number, 0, true)
    }
    do throws(IOFailure) {
      let file = try writableFile(&number, isNew: isNew)
      try file.write(bytes, at: offset)
      if startsWriteback { file.startWriteback(offset: offset, count: bytes.count) }
    } catch {
      state.withLock { state in
        state.slabs[number]!.outstanding -= count
        makeIdle(number, &state)
      }
      reclaim(number)
      throw error
    }
    state.withLock { state in
      makeIdle(number, &state)
      state.unsynchronized.insert(number)
    }
    return (number, offset)
  }

  private func writableFile(_ slab: inout UInt32, isNew: Bool) throws(IOFailure) -> any BlockFile {
    let number = slab
    if let file = state.withLock({ $0.slabs[number]?.file }) { return file }
    let file: any BlockFile
    if isNew {
      file = try create(&slab)
      state.withLock { $0.directoryIsUnsynchronized = true }
    } else {
      file = try io.open(Self.name(slab), .readWrite)
    }
    let opened = slab
    let preallocates = state.withLock { state in
      state.slabs[opened]?.file = file
      return isNew && state.slabs[opened]?.isPreallocated == true
    }
    // With room for twice what is still to come: what is given ahead to one slab must not be missing for another.
    if preallocates {
      file.preallocate(Self.byteCountMax, leaving: 2 * state.withLock { $0.expectedByteCount })
    }
    return file
  }

  /// A new slab's file. A number whose file is there already, garbage that a reader kept from being removed, is skipped.
  private func create(_ slab: inout UInt32) throws(IOFailure) -> any BlockFile {
    while true {
      do throws(IOFailure) {
        return try io.open(Self.name(slab), .createNew)
      } catch {
        guard error.errno == existingFile else { throw error }
      }
      let taken = slab
      slab = state.withLock { state in
        let number = state.nextSlab
        state.nextSlab += 1
        state.slabs[number] = state.slabs.removeValue(forKey: taken)
        return number
      }
    }
  }

  /// Makes everything durable that was appended before the call; the next run then begins on a sector of its own. After a failure
  /// nobody knows what the disk has, and every later call fails in the same way.
  func synchronize() throws(IOFailure) {
    // One at a time: whoever comes meanwhile must not return before what another one makes durable is so.
    try synchronizing.withLock { failure throws(IOFailure) in
      if let failure { throw failure }
      do throws(IOFailure) { try synchronizeAlone() } catch {
        failure = error
        throw error
      }
    }
  }

  private func synchronizeAlone() throws(IOFailure) {
    let (written, directory) = state.withLock { state -> ([(UInt32, any BlockFile)], Bool) in
      defer {
        state.unsynchronized = []
        state.directoryIsUnsynchronized = false
      }
      let written = state.unsynchronized.sorted().compactMap { number in
        state.slabs[number]?.file.map { (number, $0) }
      }
      // Before the sync: what is appended meanwhile may reach the disk after it.
      for (number, _) in written { beginSector(of: number, &state) }
      return (written, state.directoryIsUnsynchronized)
    }
    do throws(IOFailure) {
      for (_, file) in written { try file.synchronize() }
      if directory { try io.synchronizeDirectory("slab") }
    } catch {
      state.withLock { state in
        state.unsynchronized.formUnion(written.map(\.0))
        state.directoryIsUnsynchronized = state.directoryIsUnsynchronized || directory
      }
      throw error
    }
    state.withLock { state in
      for (number, _) in written where state.slabs[number] != nil {
        beginSector(of: number, &state)
        let isFull = state.slabs[number]!.position + UInt64(WorkerContext.bufferByteCount) > Self.byteCountMax
        // A slab that is not idle is being written to.
        if isFull, state.idle.contains(number), !state.unsynchronized.contains(number) {
          state.slabs[number]!.file = nil
        }
      }
    }
  }

  private func beginSector(of number: UInt32, _ state: inout State) {
    let position = state.slabs[number]!.position
    guard position < Self.alignedUp(position) else { return }
    state.slabs[number]!.position = Self.alignedUp(position)
    _ = state.slabs[number]!.dead.insert(position..<Self.alignedUp(position))
  }

  // MARK: Space

  /// A bulk operation is going to append so many bytes, until ``endExpecting(_:)``.
  func expect(_ byteCount: UInt64) { state.withLock { $0.expectedByteCount += byteCount } }

  /// The bulk operation that expected so many bytes has ended. After the last one, slabs are cut to what was written.
  func endExpecting(_ byteCount: UInt64) {
    let isLast = state.withLock { state in
      state.expectedByteCount -= byteCount
      return state.expectedByteCount == 0
    }
    guard isLast, beginChange() else { return }
    defer { endChange() }
    // Taken from the idle ones meanwhile, so that nobody appends to what is being cut.
    let cuts = state.withLock { state -> [(number: UInt32, file: any BlockFile, position: UInt64)] in
      let cuts = state.idle.compactMap { number -> (number: UInt32, file: any BlockFile, position: UInt64)? in
        guard let slab = state.slabs[number], slab.isPreallocated, let file = slab.file else { return nil }
        state.slabs[number]!.isPreallocated = false
        state.slabs[number]!.isTaken = true
        return (number, file, slab.position)
      }
      state.idle.removeAll { number in cuts.contains { $0.number == number } }
      return cuts
    }
    for cut in cuts { try? cut.file.truncate(to: cut.position) }
    for cut in cuts { makeIdle(cut.number) }
  }

  /// The extents were committed, and are live until ``free(_:)``: what a later commit removes stays until that is durable.
  func settle(_ added: [Extent]) {
    state.withLock { state in
      for extent in added {
        let count = UInt64(extent.storedByteCount)
        state.slabs[extent.slab]?.outstanding -= count
        state.slabs[extent.slab]?.counter.liveByteCount += count
        let end = state.slabs[extent.slab]?.counter.end ?? 0
        state.slabs[extent.slab]?.counter.end = max(end, extent.offset + count)
      }
    }
  }

  /// The extents will never be committed: gives their space back.
  func discard(_ extents: [Extent]) {
    guard beginChange() else { return }
    defer { endChange() }
    // While they are outstanding: after that their place may be another writer's. Not where the whole slab is about to go.
    for (slab, part) in Dictionary(grouping: extents, by: \.slab) {
      let count = part.reduce(0) { $0 + UInt64($1.storedByteCount) }
      let goes = state.withLock { state in
        state.slabs[slab].map { $0.counter.liveByteCount == 0 && $0.outstanding == count } ?? true
      }
      if !goes { punch(part, in: slab, wasCommitted: false) }
    }
    state.withLock { state in
      for extent in extents { state.slabs[extent.slab]?.outstanding -= UInt64(extent.storedByteCount) }
    }
    for number in Set(extents.map(\.slab)) { reclaim(number) }
  }

  /// The extents were removed by a commit that is durable, and nobody reads them any more.
  func free(_ extents: [Extent]) {
    guard beginChange() else { return }
    defer { endChange() }
    state.withLock { state in
      for extent in extents {
        let live = state.slabs[extent.slab]?.counter.liveByteCount ?? 0
        state.slabs[extent.slab]?.counter.liveByteCount -= min(live, UInt64(extent.storedByteCount))
      }
    }
    // What is cut lies behind every committed byte, so nobody can have appended where these extents were.
    for (slab, part) in Dictionary(grouping: extents, by: \.slab) {
      reclaim(slab)
      punch(part, in: slab, wasCommitted: true)
    }
  }

  /// Removes a slab without live bytes, or cuts off what was never committed. Failures leave dead bytes and no damage.
  private func reclaim(_ number: UInt32) {
    enum Outcome {
      case nothing
      case remove
      case cut(UInt64)
    }
    let outcome = state.withLock { state -> Outcome in
      // A slab in use by a writer is not idle.
      guard let slab = state.slabs[number], slab.outstanding == 0 else { return .nothing }
      guard let position = state.idle.firstIndex(of: number) else {
        return slab.counter.liveByteCount == 0 ? removed(number, &state) : .nothing
      }
      if slab.counter.liveByteCount == 0 {
        state.idle.remove(at: position)
        return removed(number, &state)
      }
      guard Self.alignedUp(slab.counter.end) < slab.position else { return .nothing }
      // Not idle until it is cut: nobody may append meanwhile.
      state.idle.remove(at: position)
      state.slabs[number]!.isTaken = true
      state.slabs[number]!.position = Self.alignedUp(slab.counter.end)
      state.slabs[number]!.dead.remove(from: slab.counter.end)
      // Holes behind the cut were counted too.
      state.slabs[number]!.punchedByteCount = nil
      return .cut(slab.counter.end)
    }
    func removed(_ number: UInt32, _ state: inout State) -> Outcome {
      state.slabs[number] = nil
      state.files[number] = nil
      state.unsynchronized.remove(number)
      return .remove
    }
    switch outcome {
    case .nothing: break
    case .remove: try? io.remove(Self.name(number))
    case .cut(let end):
      try? io.open(Self.name(number), .readWrite).truncate(to: end)
      makeIdle(number)
    }
  }

  private func makeIdle(_ number: UInt32) {
    state.withLock { makeIdle(number, &$0) }
  }

  private func makeIdle(_ number: UInt32, _ state: inout State) {
    guard let slab = state.slabs[number] else { return }
    state.slabs[number]!.isTaken = false
    if !slab.isRetired { state.idle.append(number) }
  }

  // MARK: Compaction

  /// How full a slab is.
  struct Fill {
    var number: UInt32
    var liveByteCount: UInt64
    /// What it takes on the disk.
    var storedByteCount: UInt64
    var wastedByteCount: UInt64 { storedByteCount - min(storedByteCount, liveByteCount) }
  }

  /// Of all slabs to which nothing is being written.
  func fills() -> [Fill] {
    let slabs = state.withLock { $0.slabs.filter { $0.value.outstanding == 0 && $0.value.counter.end > 0 } }
    return slabs.map { number, slab in
      let end = Self.alignedUp(slab.counter.end)
      let punched: UInt64
      if let known = slab.punchedByteCount {
        punched = known
      } else {
        let allocated = (try? file(number).allocatedByteCount()) ?? end
        punched = end - min(end, allocated)
        state.withLock { $0.slabs[number]?.punchedByteCount = punched }
      }
      return Fill(
        number: number, liveByteCount: slab.counter.liveByteCount, storedByteCount: end - min(end, punched))
    }
  }

  /// Appends nothing more to these slabs.
  func retire(_ slabs: Set<UInt32>) {
    state.withLock { state in
      for number in slabs { state.slabs[number]?.isRetired = true }
      state.idle.removeAll { slabs.contains($0) }
    }
  }

  func restore(_ slabs: Set<UInt32>) {
    state.withLock { state in
      for number in slabs where state.slabs[number]?.isRetired == true {
        state.slabs[number]!.isRetired = false
        // Whoever has taken it makes it idle: listed twice, it would have two writers, and one could cut what the other appends.
        if state.slabs[number]!.position < Self.byteCountMax, !state.slabs[number]!.isTaken {
          state.idle.insert(number, at: 0)
        }
      }
    }
  }

  /// Cuts off what a crash left behind the last committed byte of slabs that still have room.
  func trim() {
    for number in state.withLock({ $0.idle }) {
      // As long as it is not idle, nobody appends to it.
      let end = state.withLock { state -> UInt64? in
        guard let slab = state.slabs[number], slab.outstanding == 0, slab.file == nil,
          let position = state.idle.firstIndex(of: number)
        else { return nil }
        state.idle.remove(at: position)
        state.slabs[number]!.isTaken = true
        return slab.counter.end
      }
      guard let end else { continue }
      defer { makeIdle(number) }
      if let size = try? file(number).size(), size > end {
        try? io.open(Self.name(number), .readWrite).truncate(to: end)
      }
    }
  }

  /// Gives the whole pages of dead extents back, together with what died beside them before.
  private func punch(_ extents: [Extent], in slab: UInt32, wasCommitted: Bool) {
    var dead: [Range<UInt64>] = []
    for extent in extents.sorted(by: { $0.offset < $1.offset }) {
      let end = extent.offset + UInt64(extent.storedByteCount)
      if let last = dead.last, last.upperBound == extent.offset {
        dead[dead.count - 1] = last.lowerBound..<end
      } else {
        dead.append(extent.offset..<end)
      }
    }
    let holes = state.withLock { state in
      dead.compactMap { hole($0, in: slab, wasCommitted: wasCommitted, &state) }
    }
    guard !holes.isEmpty, let file = try? io.open(Self.name(slab), .readWrite) else { return }
    punch(holes, in: slab, file)
  }

  private func punch(_ holes: [Range<UInt64>], in slab: UInt32, _ file: any BlockFile) {
    for hole in holes {
      try? file.punchHole(offset: hole.lowerBound, count: hole.upperBound - hole.lowerBound)
    }
    // Some of it may have been a hole before.
    state.withLock { $0.slabs[slab]?.punchedByteCount = nil }
  }

  /// Gives back the holes that were too small to be punched while the container is busy.
  func punchHoles() {
    guard beginChange() else { return }
    defer { endChange() }
    for slab in state.withLock({ $0.slabs.keys.sorted() }) {
      let holes = state.withLock { state -> [Range<UInt64>] in
        guard let end = state.slabs[slab].map({ Self.alignedUp($0.counter.end) }) else { return [] }
        return state.slabs[slab]!.dead.takeUnpunched().compactMap {
          Self.pages($0.clamped(to: 0..<end), byteCountMin: Self.holeByteCountMin)
        }
      }
      guard !holes.isEmpty, let file = try? io.open(Self.name(slab), .readWrite) else { continue }
      punch(holes, in: slab, file)
    }
  }

  /// The pages to give back now that a range is dead: those of the range that it forms with its neighbours, less those of neighbours
  /// that were large enough by themselves.
  private func hole(_ range: Range<UInt64>, in slab: UInt32, wasCommitted: Bool, _ state: inout State)
    -> Range<UInt64>?
  {
    guard let (whole, before, after) = state.slabs[slab]?.dead.insert(range) else { return nil }
    // Who empties a slab gives back at once what he has moved: it is there twice.
    let byteCountMin =
      state.slabs[slab]?.isRetired == true ? Self.holeByteCountMin : Self.holeByteCountMinAtOnce
    func pages(_ range: Range<UInt64>) -> Range<UInt64>? { Self.pages(range, byteCountMin: byteCountMin) }
    guard let all = pages(whole) else { return nil }
    let begin = before.flatMap(pages)?.upperBound ?? all.lowerBound
    var end = after.flatMap(pages)?.lowerBound ?? all.upperBound
    // What lies behind every committed byte may be cut and written anew before the hole is made.
    if wasCommitted { end = min(end, Self.alignedUp(state.slabs[slab]!.counter.end)) }
    return begin < end ? begin..<end : nil
  }

  /// The whole pages of a range, if they are enough.
  private static func pages(_ range: Range<UInt64>, byteCountMin: UInt64) -> Range<UInt64>? {
    let begin = alignedUp(range.lowerBound)
    let end = range.upperBound / alignment * alignment
    return end >= begin + byteCountMin ? begin..<end : nil
  }
}
