import Dispatch
import EncryptedFile
import Locks

/// A slab that several units go to, as far as it has room.
final class SharedSlab: Sendable {
  /// The room that a slab needs to be chosen.
  let byteCount: UInt64
  /// The slab, which no other writer has meanwhile, and the units that are not written yet.
  fileprivate let state = Guarded<(number: UInt32?, unitsLeft: Int)>((nil, 0))

  init(byteCount: UInt64) { self.byteCount = byteCount }

  func expectUnit() { state.withLock { $0.unitsLeft += 1 } }
}

/// Appends sealed runs to slabs and reads them back.
///
/// Each concurrent writer gets its own slab, since the kernel serialises writes to one file.
final class SlabStore: Sendable {
  static let byteCountMax = SlabCounter.slabByteCountMax
  static let alignment: UInt64 = 4096
  private static let openFileCountMax = 128
  /// The minimum size of a hole that is punched at once. A hole costs the file system about 0.2 ms
  /// and fragments the file: smaller ones wait until their neighbours are dead too, or for
  /// ``punchHoles()``.
  private static let holeByteCountMinAtOnce: UInt64 = 1 << 20
  /// The minimum size of any hole. Smaller ones wait until their neighbours are dead too, or for
  /// compaction.
  private static let holeByteCountMin: UInt64 = 64 << 10
  /// The minimum number of expected bytes for preallocation. Blocks allocated in advance make large
  /// writes a tenth cheaper on ext4; small writes would become more expensive.
  private static let preallocatedByteCountMin: UInt64 = 16 << 20

  /// The slab and the offset at which appended bytes begin.
  typealias Location = (slab: UInt32, offset: UInt64)

  private struct Slab {
    var counter = SlabCounter()
    /// The offset of the next run.
    var position: UInt64
    /// Bytes that are written, but neither committed nor discarded.
    var outstanding: UInt64 = 0
    /// Whether the file may be longer than what was written.
    var isPreallocated = false
    /// Whether the slab is being emptied: nothing is appended to it.
    var isRetired = false
    var dead = DeadRanges()
    /// Whether a thread appends to the slab or cuts it. That thread makes the slab idle again.
    var isTaken = false
    /// Bytes of holes; nil when they have to be measured.
    var punchedByteCount: UInt64?
    /// The file, open for writing from the first write until the slab is full and durable.
    var file: (any BlockFile)?
  }

  private struct State {
    var slabs: [UInt32: Slab] = [:]
    /// Slabs with room that no thread writes to at the moment; the last one is used first.
    var idle: [UInt32] = []
    var nextSlab: UInt32
    /// Slab files that are open for reading.
    var files: [UInt32: any BlockFile] = [:]
    var unsynchronized: Set<UInt32> = []
    var directoryIsUnsynchronized = false
    /// The bytes that all bulk operations under way are going to append.
    var expectedByteCount: UInt64 = 0
  }

  private let io: any BlockIO
  /// Throws when the files are not those of this container any more, `byName` also when other ones have
  /// their names. Called before one is changed.
  private let requireOwn: @Sendable (_ byName: Bool) throws(IOFailure) -> Void
  private let state: Guarded<State>
  /// Held while a sync is under way. The value is the failure of an earlier sync, or nil.
  private let synchronizing = Guarded<IOFailure?>(nil)
  /// Whether to begin write-back at once, so that the final flush is short.
  let startsWriteback: Bool

  init(
    io: any BlockIO, counters: [UInt32: SlabCounter], nextSlab: UInt32, startsWriteback: Bool,
    requireOwn: @escaping @Sendable (_ byName: Bool) throws(IOFailure) -> Void = { _ in }
  ) {
    self.io = io
    self.requireOwn = requireOwn
    self.startsWriteback = startsWriteback
    var state = State(nextSlab: nextSlab)
    for (number, counter) in counters {
      state.slabs[number] = Slab(counter: counter, position: Self.alignedUp(counter.end))
    }
    // The fullest slab is the last one, since that is used first.
    state.idle = counters.filter { Self.alignedUp($0.value.end) < Self.byteCountMax }
      .sorted { ($0.value.end, $0.key) < ($1.value.end, $1.key) }.map(\.key)
    self.state = Guarded(state)
  }

  static func name(_ slab: UInt32) -> String {
    let digits = String(slab, radix: 16)
    return "slab/" + String(repeating: "0", count: 8 - digits.count) + digits
  }

  /// The slab whose file has that name in `slab/`; nil when the name is not a slab's.
  static func number(_ fileName: String) -> UInt32? {
    guard let slab = UInt32(fileName, radix: 16), name(slab) == "slab/" + fileName else { return nil }
    return slab
  }

  static func alignedUp(_ offset: UInt64) -> UInt64 { (offset + alignment - 1) / alignment * alignment }

  var nextSlab: UInt32 { state.withLock { $0.nextSlab } }

  /// Whether the slab has, or is about to get, bytes that are needed.
  func knows(_ slab: UInt32) -> Bool { state.withLock { $0.slabs[slab] != nil } }

  /// Whether files may be removed, cut and punched: they are still those of this container.
  private var mayFree: Bool { (try? requireOwn(true)) != nil }

  // MARK: Reading

  /// Fills the buffer up to the end of the slab. Returns the number of bytes that were read; a
  /// missing slab has none.
  func read(_ slab: UInt32, _ offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(IOFailure)
    -> Int
  {
    try fileIfThere(slab)?.read(into: buffer, at: offset) ?? 0
  }

  /// The length of a slab; nil when it is missing.
  func size(_ slab: UInt32) throws(IOFailure) -> UInt64? { try fileIfThere(slab)?.size() }

  /// The file of a slab; nil when it is missing or is no regular file.
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

  /// Appends a run, or several back to back. They count as outstanding until ``settle(_:)`` or
  /// ``discard(_:)``. Units that share a slab are written one after the other.
  func append(_ bytes: UnsafeRawBufferPointer, sharing slab: SharedSlab? = nil) throws(IOFailure) -> Location
  {
    try requireOwn(false)
    guard let slab else { return try append(bytes, keeping: nil).location }
    return try slab.state.withLock { shared throws(IOFailure) in
      let kept = shared.number
      shared.number = nil
      let (location, isKept) = try append(bytes, keeping: (kept, slab.byteCount))
      if isKept { shared.number = location.slab }
      return location
    }
  }

  /// Ends one of the units that ``SharedSlab/expectUnit()`` has announced; after the last one other
  /// writers may have the slab.
  func endUnit(of slab: SharedSlab) {
    let isLast = slab.state.withLock { shared in
      shared.unitsLeft -= 1
      return shared.unitsLeft == 0
    }
    if isLast { giveBack(slab) }
  }

  /// Lets other writers have the slab.
  func giveBack(_ slab: SharedSlab) {
    let number = slab.state.withLock { shared in
      defer { shared.number = nil }
      return shared.number
    }
    if let number { makeIdle(number) }
  }

  /// Appends to the slab that is kept, or else to one that has room for `byteCount` bytes, which is
  /// kept then.
  private func append(
    _ bytes: UnsafeRawBufferPointer, keeping kept: (number: UInt32?, byteCount: UInt64)?
  ) throws(IOFailure) -> (location: Location, isKept: Bool) {
    let count = UInt64(bytes.count)
    var (number, offset, isNew) = state.withLock { state -> (UInt32, UInt64, Bool) in
      if let number = kept?.number { makeIdle(number, &state) }
      let room = kept?.number == nil ? max(count, kept?.byteCount ?? 0) : count
      let fitting = state.idle.lastIndex { state.slabs[$0]!.position + room <= Self.byteCountMax }
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
      // Other writers have slabs of their own, so the last ones stay partly empty; they are cut at
      // the end.
      state.slabs[number]!.isPreallocated = state.expectedByteCount >= Self.preallocatedByteCountMin
      return (number, 0, true)
    }
    do throws(IOFailure) {
      let file = try writableFile(&number, isNew: isNew)
      try file.write(bytes, at: offset)
      if startsWriteback { file.startWriteback(offset: offset, count: bytes.count) }
    } catch {
      let isWritable = isNew || state.withLock { $0.slabs[number]!.file != nil }
      state.withLock { state in
        state.slabs[number]!.outstanding -= count
        // A slab that is damaged as a whole takes nothing more.
        if isWritable || !error.isOfFile { makeIdle(number, &state) }
      }
      reclaim(number)
      guard isWritable || !error.isOfFile else {
        return try append(bytes, keeping: kept.map { (nil, $0.byteCount) })
      }
      throw error
    }
    return state.withLock { state in
      if kept == nil { makeIdle(number, &state) }
      state.unsynchronized.insert(number)
      return ((number, offset), kept != nil)
    }
  }

  private func writableFile(_ slab: inout UInt32, isNew: Bool) throws(IOFailure) -> any BlockFile {
    let number = slab
    if let file = state.withLock({ $0.slabs[number]?.file }) { return file }
    let file: any BlockFile
    if isNew {
      file = try create(&slab)
      state.withLock { $0.directoryIsUnsynchronized = true }
    } else {
      try requireOwn(true)
      file = try io.open(Self.name(slab), .readWrite)
    }
    let opened = slab
    let preallocates = state.withLock { state in
      state.slabs[opened]?.file = file
      return isNew && state.slabs[opened]?.isPreallocated == true
    }
    // Twice the bytes that are still expected must stay free: the preallocation of one slab must
    // not take the space that another one needs.
    if preallocates {
      file.preallocate(Self.byteCountMax, leaving: 2 * state.withLock { $0.expectedByteCount })
    }
    return file
  }

  /// Creates the file of a new slab. A number whose file exists already is skipped: the file is
  /// garbage that a reader kept from being removed.
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

  /// Makes everything durable that was appended before the call. The next run then begins in a new
  /// sector. After a failure the contents of the disk are unknown, and every later call fails in
  /// the same way.
  func synchronize() throws(IOFailure) {
    // One sync at a time: a concurrent call must not return before the bytes that another one syncs
    // are durable.
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
      // A new sector begins before the sync: bytes that are appended during the sync may reach the
      // disk after it.
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

  /// Announces a bulk operation that is going to append so many bytes, until ``endExpecting(_:)``.
  func expect(_ byteCount: UInt64) { state.withLock { $0.expectedByteCount += byteCount } }

  /// Ends a bulk operation that expected so many bytes. After the last one, slabs are cut to what
  /// was written.
  func endExpecting(_ byteCount: UInt64) {
    let isLast = state.withLock { state in
      state.expectedByteCount -= byteCount
      return state.expectedByteCount == 0
    }
    guard isLast else { return }
    // The slabs are not idle meanwhile, so that no thread appends to a slab that is being cut.
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

  /// Counts committed extents as live until ``free(_:)``. Extents that a later commit removes stay
  /// live until that commit is durable.
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

  /// Gives back the space of extents that will never be committed.
  func discard(_ extents: [Extent]) {
    guard !extents.isEmpty else { return }
    let mayFree = mayFree
    // Holes are punched while the extents are outstanding: after that their offsets may belong to
    // another writer. No hole is needed where the whole slab is about to be removed.
    for (slab, part) in Dictionary(grouping: extents, by: \.slab) {
      let count = part.reduce(0) { $0 + UInt64($1.storedByteCount) }
      let goes = state.withLock { state in
        state.slabs[slab].map { $0.counter.liveByteCount == 0 && $0.outstanding == count } ?? true
      }
      if !goes, mayFree { punch(part, in: slab, wasCommitted: false) }
    }
    state.withLock { state in
      for extent in extents { state.slabs[extent.slab]?.outstanding -= UInt64(extent.storedByteCount) }
    }
    if mayFree { for number in Set(extents.map(\.slab)) { reclaim(number) } }
  }

  /// Frees extents that a durable commit has removed and that no reader needs any more.
  func free(_ extents: [Extent]) {
    state.withLock { state in
      for extent in extents {
        let live = state.slabs[extent.slab]?.counter.liveByteCount ?? 0
        state.slabs[extent.slab]?.counter.liveByteCount -= min(live, UInt64(extent.storedByteCount))
      }
    }
    guard mayFree else { return }
    // A cut begins after every committed byte, so no thread can have appended at the offsets of
    // these extents.
    for (slab, part) in Dictionary(grouping: extents, by: \.slab) {
      reclaim(slab)
      punch(part, in: slab, wasCommitted: true)
    }
  }

  /// Removes a slab without live bytes, or cuts off bytes that were never committed. A failure
  /// leaves dead bytes and does no damage.
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
      // The slab is not idle until it is cut, so that no thread appends meanwhile.
      state.idle.remove(at: position)
      state.slabs[number]!.isTaken = true
      state.slabs[number]!.position = Self.alignedUp(slab.counter.end)
      state.slabs[number]!.dead.remove(from: slab.counter.end)
      // The count includes holes beyond the cut.
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

  /// The fill level of a slab.
  struct Fill {
    var number: UInt32
    var liveByteCount: UInt64
    /// Bytes that the slab takes on the disk.
    var storedByteCount: UInt64
    var wastedByteCount: UInt64 { storedByteCount - min(storedByteCount, liveByteCount) }
  }

  /// The fill levels of all slabs to which nothing is being written.
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

  /// Stops appending to these slabs.
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
        // The thread that has taken a slab makes it idle itself. Listed twice, the slab would have
        // two writers, and one could cut what the other appends.
        if state.slabs[number]!.position < Self.byteCountMax, !state.slabs[number]!.isTaken {
          state.idle.insert(number, at: 0)
        }
      }
    }
  }

  /// Cuts off bytes that a crash left after the last committed one, in slabs that still have room.
  func trim() {
    guard mayFree else { return }
    for number in state.withLock({ $0.idle }) {
      // The slab is not idle meanwhile, so that no thread appends to it.
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

  /// Punches holes at the whole pages of dead extents and of the adjacent bytes that died before.
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
    // A part of these ranges may have been holes before.
    state.withLock { $0.slabs[slab]?.punchedByteCount = nil }
  }

  /// Punches the holes that were too small to be punched while the container was busy.
  func punchHoles() {
    guard mayFree else { return }
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

  /// The pages to give back now that a range is dead: those of its union with its neighbours,
  /// without those of neighbours that were large enough by themselves.
  private func hole(_ range: Range<UInt64>, in slab: UInt32, wasCommitted: Bool, _ state: inout State)
    -> Range<UInt64>?
  {
    guard let (whole, before, after) = state.slabs[slab]?.dead.insert(range) else { return nil }
    // A slab that is being emptied gives moved bytes back at once, since they are stored twice.
    let byteCountMin =
      state.slabs[slab]?.isRetired == true ? Self.holeByteCountMin : Self.holeByteCountMinAtOnce
    func pages(_ range: Range<UInt64>) -> Range<UInt64>? { Self.pages(range, byteCountMin: byteCountMin) }
    guard let all = pages(whole) else { return nil }
    let begin = before.flatMap(pages)?.upperBound ?? all.lowerBound
    var end = after.flatMap(pages)?.lowerBound ?? all.upperBound
    // Bytes after the last committed one may be cut and written anew before the hole is made.
    if wasCommitted { end = min(end, Self.alignedUp(state.slabs[slab]!.counter.end)) }
    return begin < end ? begin..<end : nil
  }

  /// The whole pages of a range; nil when they have fewer than `byteCountMin` bytes.
  private static func pages(_ range: Range<UInt64>, byteCountMin: UInt64) -> Range<UInt64>? {
    let begin = alignedUp(range.lowerBound)
    let end = range.upperBound / alignment * alignment
    return end >= begin + byteCountMin ? begin..<end : nil
  }
}
