import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a compaction did.
public struct CompactionReceipt: Sendable {
  /// Slabs that were emptied, as far as readers allow.
  public var slabCount = 0
  /// Stored bytes that were moved.
  public var copiedByteCount: UInt64 = 0
  /// Bytes on the disk that nothing needs any more. Readers that hold an older state keep them for as long as they like.
  public var freedByteCount: UInt64 = 0
  /// Segments that did not open: they were left where they are.
  public var findings: [Finding] = []
}

/// Compaction: live segments leave slabs that are mostly dead, and those slabs go.
///
/// What is copied is opened first; its bytes stay as they are, so no key and no plaintext is touched. Each batch is a commit of its
/// own, so it can end at any moment, and goes on from there the next time.
extension Container {
  /// How much space may be wasted before it is worth copying.
  struct CompactionPolicy {
    /// Of what is live in all slabs.
    var wasteFraction: Double
    /// Less than that is not looked at.
    var wasteByteCountMin: UInt64
    /// Of what one slab takes on the disk.
    var slabWasteFraction: Double
    /// More than that is not copied in one go.
    var copiedByteCountMax: UInt64
    /// What each run that is moved has to gain: it costs a record of the catalog.
    var wasteByteCountMinPerRun: UInt64 = 0

    /// When somebody asks for it.
    static let thorough = CompactionPolicy(
      wasteFraction: 0, wasteByteCountMin: 64 << 10, slabWasteFraction: 0.02, copiedByteCountMax: .max)
    /// At closing: a container that is not large leaves in good order, and a large one does not keep whoever closes it.
    static func closing(liveByteCount: UInt64) -> CompactionPolicy {
      let isLarge = liveByteCount > 256 << 20
      return CompactionPolicy(
        wasteFraction: isLarge ? 0.25 : 0.02, wasteByteCountMin: 256 << 10,
        slabWasteFraction: isLarge ? 0.5 : 0.02,
        copiedByteCountMax: isLarge ? 32 << 20 : 256 << 20, wasteByteCountMinPerRun: 100)
    }
    /// While the container is in use.
    static func background(_ options: Options) -> CompactionPolicy {
      CompactionPolicy(
        wasteFraction: 0.15, wasteByteCountMin: options.backgroundWasteByteCountMin, slabWasteFraction: 0.15,
        copiedByteCountMax: .max)
    }
  }

  private static let roundByteCountMax: UInt64 = 256 << 20
  private static let batchByteCountMax = 1 << 20
  /// So long nobody has changed anything when the container is taken for idle.
  private static let idleNanoseconds: Int64 = 500_000_000

  /// Gives back the space of what was removed or replaced, as far as it is worth copying what is left beside it. Works while other
  /// threads read and write. Throws `cancelled`, and `diskFull` when there is no room for what is copied. One compaction runs at a
  /// time: the progress report may close the container, and must not call this.
  @discardableResult
  public func compact(control: BulkControl = BulkControl()) throws -> CompactionReceipt {
    try requireOpen()
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    do {
      return try compaction.withLock { _ in
        try compactAlone(.thorough, bytesPerSecond: nil, control: control)
      }
    } catch {
      // Closed meanwhile, for instance.
      throw translated(error, path: io.place)
    }
  }

  /// With the compaction's lock held.
  func compactAlone(
    _ policy: CompactionPolicy, bytesPerSecond: UInt64?, control: BulkControl = BulkControl()
  ) throws -> CompactionReceipt {
    var receipt = CompactionReceipt()
    // What was removed is given back when its commit is durable: then it shows what is wasted.
    try settleSpace()
    slabs.punchHoles()
    // What is pinned goes before long, and its places stand in several records.
    let pinned = try withStoredCatalog { try $0.pinnedSlabs() }
    let fills = slabs.fills()
    var waste = fills.reduce(UInt64(0)) { $0 + $1.wastedByteCount }
    let live = fills.reduce(UInt64(0)) { $0 + $1.liveByteCount }
    let wasteMax = max(policy.wasteByteCountMin, UInt64(Double(live) * policy.wasteFraction))
    // The emptiest first: they give most for what is copied.
    var candidates = fills.filter {
      !pinned.contains($0.number)
        && $0.wastedByteCount > UInt64(Double($0.storedByteCount) * policy.slabWasteFraction)
    }.sorted {
      $0.liveByteCount * max(1, $1.storedByteCount) < $1.liveByteCount * max(1, $0.storedByteCount)
    }[...]
    var victims: [SlabStore.Fill] = []
    var copied: UInt64 = 0
    while waste > wasteMax, let next = candidates.popFirst() {
      copied += next.liveByteCount
      guard copied <= policy.copiedByteCountMax else { break }
      victims.append(next)
      waste -= next.wastedByteCount
    }
    let pace = Pace(bytesPerSecond: bytesPerSecond, byteCount: victims.reduce(0) { $0 + $1.liveByteCount })
    var rest = victims[...]
    while !rest.isEmpty {
      var round: [UInt32: SlabStore.Fill] = [:]
      var byteCount: UInt64 = 0
      while let next = rest.first, round.isEmpty || byteCount + next.liveByteCount <= Self.roundByteCountMax {
        round[next.number] = next
        byteCount += next.liveByteCount
        rest.removeFirst()
      }
      if try evacuate(round, policy, pace: pace, control: control, &receipt) {
        receipt.slabCount += round.count
      }
    }
    guard !victims.isEmpty else { return receipt }
    try settleSpace()
    let before = fills.reduce(UInt64(0)) { $0 + $1.storedByteCount }
    let after = slabs.fills().reduce(UInt64(0)) { $0 + $1.storedByteCount }
    receipt.freedByteCount = before - min(before, after)
    return receipt
  }

  /// Moves what is live out of some slabs; false when that is not worth it.
  private func evacuate(
    _ victims: [UInt32: SlabStore.Fill], _ policy: CompactionPolicy, pace: Pace, control: BulkControl,
    _ receipt: inout CompactionReceipt
  ) throws -> Bool {
    let numbers = Set(victims.keys)
    slabs.retire(numbers)
    defer { slabs.restore(numbers) }
    let residents = try residents(of: numbers)
    let waste = victims.values.reduce(0) { $0 + $1.wastedByteCount }
    guard UInt64(residents.count) * policy.wasteByteCountMinPerRun <= waste else { return false }
    var batch: [Resident] = []
    var batchByteCount = 0
    for resident in residents {
      let byteCount = resident.extent.storedByteCount
      if batchByteCount + byteCount > Self.batchByteCountMax, !batch.isEmpty {
        try move(batch, pace: pace, control: control, &receipt)
        batch = []
        batchByteCount = 0
      }
      batch.append(resident)
      batchByteCount += byteCount
    }
    if !batch.isEmpty { try move(batch, pace: pace, control: control, &receipt) }
    return true
  }

  /// A run that lives in a slab, and whose it is.
  private struct Resident {
    var file: UInt64
    var epoch: UInt32
    var secret: [UInt8]
    var extent: Extent
  }

  /// In the order in which they stand in the slabs.
  private func residents(of victims: Set<UInt32>) throws -> [Resident] {
    var found: [Resident] = []
    try withStoredCatalog { records in
      try records.scan(.all(.inode)) { key, value in
        let inode = try CatalogSnapshot.decode(value) { bytes throws(MalformedBytes) in try Inode(bytes) }
        guard let file = key.number(at: 1), let extent = inode.firstExtent, victims.contains(extent.slab)
        else {
          return
        }
        found.append(Resident(file: file, epoch: inode.epoch, secret: inode.secret, extent: extent))
      }
      var owner: (file: UInt64, inode: Inode)?
      try records.scan(.all(.extent)) { key, value in
        guard let file = key.number(at: 1), let extent = try? Extent(key: key, value: value) else {
          throw ContainerError(.catalogDamaged, detail: "an extent that cannot be")
        }
        guard victims.contains(extent.slab) else { return }
        if owner?.file != file { owner = (file, try records.inode(file)) }
        found.append(
          Resident(file: file, epoch: owner!.inode.epoch, secret: owner!.inode.secret, extent: extent))
      }
    }
    return found.sorted { ($0.extent.slab, $0.extent.offset) < ($1.extent.slab, $1.extent.offset) }
  }

  /// Copies runs to the end of another slab, and names the new places in one commit. A run that has changed meanwhile is left out.
  private func move(
    _ batch: [Resident], pace: Pace, control: BulkControl, _ receipt: inout CompactionReceipt
  ) throws {
    if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
    try requireOpen()
    if pace.isInBackground { try waitUntilIdle() }
    // As long as this is held, nothing that was live is given back.
    let moved = try withStoredCatalog { try copy(batch, in: $0, &receipt) }
    let skipped = try transaction(storing: moved.flatMap(\.places)) { transaction -> [Extent] in
      var skipped: [Extent] = []
      transaction.isMaintenance = true
      var accepted: [(resident: Resident, places: [Extent])] = []
      for copy in moved {
        if try transaction.moveExtent(of: copy.resident.file, from: copy.resident.extent, to: copy.places) {
          accepted.append(copy)
        } else {
          skipped += copy.places
        }
      }
      let certain = accepted
      transaction.whenApplied { [openFiles] in
        for (resident, places) in certain { openFiles.move(resident.extent, of: resident.file, to: places) }
      }
      return skipped
    }
    slabs.discard(skipped)
    let byteCount = moved.reduce(0) { $0 + UInt64($1.resident.extent.storedByteCount) }
    receipt.copiedByteCount += byteCount
    try pace.advance(byteCount, control: control) { self.compactionStop.isCancelled || self.isClosed }
  }

  /// Copies runs one behind the other with as few writes as may be, and returns where they are, in pieces of at most 1 MiB. A run
  /// that does not open is left out, and reported if it is still needed: what was replaced since the slab was looked through may have
  /// been given back.
  private func copy(
    _ batch: [Resident], in records: CatalogSnapshot, _ receipt: inout CompactionReceipt
  ) throws -> [(resident: Resident, places: [Extent])] {
    try withContext { context in
      var moved: [(resident: Resident, places: [Extent])] = []
      // What waits in the output buffer: which place of which run, and where it begins.
      var waiting: [(run: Int, place: Int)] = []
      var filled = 0
      func write() throws {
        guard filled > 0 else { return }
        let (slab, offset) = try slabs.append(UnsafeRawBufferPointer(rebasing: context.output[0..<filled]))
        for (run, place) in waiting {
          moved[run].places[place].slab = slab
          moved[run].places[place].offset += offset
        }
        waiting = []
        filled = 0
      }
      do {
        for resident in batch {
          let problem = try verifyRun(
            resident.extent,
            key: keys.fileKey(resident.file, epoch: resident.epoch, secret: resident.secret), slabs: slabs,
            context: context)
          if let problem {
            if try records.file(resident.file, has: resident.extent) {
              receipt.findings.append(Finding(.damage, .segmentDamaged, "file \(resident.file): \(problem)"))
            }
            continue
          }
          moved.append((resident, []))
          var skipped = 0
          while skipped < resident.extent.count {
            var part = resident.extent.slice(
              skipping: skipped,
              count: min(Int(resident.extent.count) - skipped, SegmentLayout.segmentsPerUnit)
            )
            if filled + part.storedByteCount > context.output.count { try write() }
            let target = UnsafeMutableRawBufferPointer(
              rebasing: context.output[filled..<(filled + part.storedByteCount)])
            _ = try slabs.read(part.slab, part.offset, into: target)
            part.offset = UInt64(filled)
            waiting.append((moved.count - 1, moved[moved.count - 1].places.count))
            moved[moved.count - 1].places.append(part)
            filled += part.storedByteCount
            skipped += Int(part.count)
          }
        }
        try write()
        return moved
      } catch {
        let written = moved.indices.flatMap { run in
          moved[run].places.indices.filter { place in !waiting.contains { $0 == (run, place) } }
            .map { moved[run].places[$0] }
        }
        slabs.discard(written)
        throw error
      }
    }
  }

  // MARK: In the background

  /// After a durable commit: begins a compaction when enough has become waste since the last one.
  func compactWhenDue() {
    guard options.compactionBytesPerSecond > 0 else { return }
    let isDue = core.withLock { core in
      let policy = CompactionPolicy.background(options)
      let wasteMax = max(policy.wasteByteCountMin, UInt64(Double(core.liveByteCount) * policy.wasteFraction))
      // Holes count as dead here; what is really wasted is looked at when it begins.
      guard !core.isClosed, !core.compactionIsScheduled, !compactionStop.isCancelled,
        core.deadByteCount > core.deadByteCountAfterCompaction + wasteMax
      else { return false }
      core.compactionIsScheduled = true
      return true
    }
    guard isDue else { return }
    inBackground(compacting, backgroundCompaction) { container in
      // What cannot be done now is done another time: nothing depends on it. Whoever has the lock may be waiting for this.
      guard (try? container.waitUntilIdle()) != nil else {
        container.core.withLock { $0.compactionIsScheduled = false }
        return
      }
      _ = try? container.compaction.withLockIfFree { _ in
        try container.compactAlone(
          .background(container.options), bytesPerSecond: container.options.compactionBytesPerSecond)
      }
      container.core.withLock { core in
        core.compactionIsScheduled = false
        core.deadByteCountAfterCompaction = core.deadByteCount
      }
    }
  }

  /// In the background: leaves disk and processor to whoever is writing, unless more is wasted than is in use.
  private func waitUntilIdle() throws {
    while true {
      if compactionStop.isCancelled || isClosed { throw ContainerError(.cancelled) }
      let mayGoOn = core.withLock { core in
        core.deadByteCount > core.liveByteCount + options.backgroundWasteByteCountMin
          || Clock.monotonicNanoseconds() - core.lastChange > Self.idleNanoseconds
      }
      if mayGoOn { return }
      usleep(50_000)
    }
  }

  /// Ends a compaction that is under way, and lets none begin.
  func stopCompaction() { compactionStop.cancel() }
}

/// Keeps to a number of bytes a second, and reports how far it is.
private final class Pace {
  private let bytesPerSecond: UInt64?
  private let byteCount: UInt64
  var isInBackground: Bool { bytesPerSecond != nil }
  private let began = Clock.monotonicNanoseconds()
  private var done: UInt64 = 0

  init(bytesPerSecond: UInt64?, byteCount: UInt64) {
    self.bytesPerSecond = bytesPerSecond
    self.byteCount = byteCount
  }

  /// Sleeps as long as it takes, in small pieces, until `stops`.
  func advance(_ count: UInt64, control: BulkControl, stops: () -> Bool) throws {
    done += count
    let elapsed = { Double(Clock.monotonicNanoseconds() - self.began) / 1e9 }
    control.progress?(
      BulkProgress(
        bytesDone: min(done, byteCount), byteCount: byteCount, filesDone: done >= byteCount ? 1 : 0,
        fileCount: 1,
        seconds: elapsed()))
    guard let bytesPerSecond else { return }
    while elapsed() < Double(done) / Double(bytesPerSecond), !stops() { usleep(5_000) }
  }
}

extension CatalogReading {
  fileprivate func file(_ file: UInt64, has run: Extent) throws -> Bool {
    guard let bytes = try value(.inode(file)), let first = (try? Inode(bytes))?.firstExtent else {
      return false
    }
    if first.start == run.start { return first == run }
    return try value(.extent(file: file, start: run.start)) == run.encodedValue
  }
}

extension Transaction {
  /// Exchanges a run for the same segments in other places, if the file still has it just so.
  func moveExtent(of file: UInt64, from old: Extent, to places: [Extent]) throws -> Bool {
    guard let bytes = try value(.inode(file)), var inode = try? Inode(bytes), let first = inode.firstExtent
    else {
      return false
    }
    // It was pinned since the slab was chosen.
    if try isPinned(old, of: file) { return false }
    if first.start == old.start {
      guard first == old else { return false }
      inode.firstExtent = places[0]
      put(file, inode)
    } else {
      let key = CatalogKey.extent(file: file, start: old.start)
      guard try value(key) == old.encodedValue else { return false }
      put(key, places[0].encodedValue)
    }
    for place in places.dropFirst() { put(.extent(file: file, start: place.start), place.encodedValue) }
    replace(old, with: places)
    return true
  }
}
