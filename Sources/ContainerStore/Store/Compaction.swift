import EncryptedFile
import SodiumPrimitives

/// One compaction: moves live segments out of slabs that are mostly dead, which are then removed.
///
/// A run is opened before it is copied. Its stored bytes stay the same, so no key and no plaintext
/// changes. Each batch is a commit of its own.
struct Compaction {
  private static let roundByteCountMax: UInt64 = 256 << 20
  private static let batchByteCountMax = 1 << 20

  let store: Store
  let policy: CompactionPolicy
  let control: BulkControl
  let pace: Pace
  /// Called before each batch; throws to end the compaction.
  let beforeBatch: () throws -> Void
  private var receipt = CompactionReceipt()
  /// The total of stored bytes to move.
  private var byteCount: UInt64 = 0

  init(
    store: Store, policy: CompactionPolicy, control: BulkControl, pace: Pace,
    beforeBatch: @escaping () throws -> Void
  ) {
    self.store = store
    self.policy = policy
    self.control = control
    self.pace = pace
    self.beforeBatch = beforeBatch
  }

  mutating func run() throws -> CompactionReceipt {
    guard policy.mergesCatalog else {
      try compactSlabs()
      return receipt
    }
    var hasRoom = true
    do { try compactSlabs() } catch ContainerError.diskFull { hasRoom = false }
    let before = try catalogByteCount()
    try store.checkpoints.mergeAll()
    let after = try catalogByteCount()
    receipt.freedByteCount += before - min(before, after)
    // The catalog may have given back what was missing.
    if !hasRoom { try compactSlabs() }
    return receipt
  }

  /// Bytes of journals, tables and the reserve, which is proportional to them.
  private func catalogByteCount() throws(IOFailure) -> UInt64 {
    try store.catalogFiles.takenByteCount() + Reserve.byteCount(store.io)
  }

  private mutating func compactSlabs() throws {
    // Removed runs are freed when their commit is durable. Only then the waste can be measured.
    try store.settleSpace()
    store.slabs.punchHoles()
    let fills = store.slabs.fills()
    let victims = try victims(among: fills)
    byteCount = victims.reduce(0) { $0 + $1.liveByteCount }
    var rest = victims[...]
    while !rest.isEmpty {
      var round: [UInt32: SlabStore.Fill] = [:]
      var roundByteCount: UInt64 = 0
      while let next = rest.first,
        round.isEmpty || roundByteCount + next.liveByteCount <= Self.roundByteCountMax
      {
        round[next.number] = next
        roundByteCount += next.liveByteCount
        rest.removeFirst()
      }
      if try evacuate(round) { receipt.slabCount += round.count }
    }
    guard !victims.isEmpty else { return }
    try store.settleSpace()
    let before = fills.reduce(UInt64(0)) { $0 + $1.storedByteCount }
    let after = store.slabs.fills().reduce(UInt64(0)) { $0 + $1.storedByteCount }
    receipt.freedByteCount += before - min(before, after)
  }

  /// The slabs to empty, the emptiest first: they free the most space for the bytes that are
  /// copied.
  private func victims(among fills: [SlabStore.Fill]) throws -> [SlabStore.Fill] {
    // Slabs with pinned runs are left out: messages are sent before long, and the offsets of pinned
    // runs are in several records.
    let pinned = try store.withSnapshot { try $0.pinnedSlabs() }
    var waste = fills.reduce(UInt64(0)) { $0 + $1.wastedByteCount }
    let live = fills.reduce(UInt64(0)) { $0 + $1.liveByteCount }
    let wasteMax = policy.wasteByteCountMax(liveByteCount: live)
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
    return victims
  }

  /// Moves live runs out of some slabs. Returns false when the gain is too small.
  private mutating func evacuate(_ victims: [UInt32: SlabStore.Fill]) throws -> Bool {
    let numbers = Set(victims.keys)
    store.slabs.retire(numbers)
    defer { store.slabs.restore(numbers) }
    let residents = try residents(of: numbers)
    let waste = victims.values.reduce(0) { $0 + $1.wastedByteCount }
    guard UInt64(residents.count) * policy.wasteByteCountMinPerRun <= waste else { return false }
    var batch: [Resident] = []
    var batchByteCount = 0
    for resident in residents {
      let byteCount = resident.extent.storedByteCount
      if batchByteCount + byteCount > Self.batchByteCountMax, !batch.isEmpty {
        try move(batch)
        batch = []
        batchByteCount = 0
      }
      batch.append(resident)
      batchByteCount += byteCount
    }
    if !batch.isEmpty { try move(batch) }
    return true
  }

  /// A run in a slab, and the file that it belongs to.
  private struct Resident {
    var file: UInt64
    var epoch: UInt32
    var secret: [UInt8]
    var extent: Extent
  }

  /// The runs in these slabs, in the order of their offsets.
  private func residents(of victims: Set<UInt32>) throws -> [Resident] {
    var found: [Resident] = []
    try store.withSnapshot { records in
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

  // MARK: Moving

  private struct Copy {
    var resident: Resident
    var runs: [Extent] = []
  }

  /// Copies runs to the end of another slab, and names their new offsets in one commit. A run that
  /// has changed meanwhile is left out.
  private mutating func move(_ batch: [Resident]) throws {
    if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
    try store.requireOpen()
    try beforeBatch()
    // While the snapshot is held, nothing that was live is freed.
    let copies = try store.withSnapshot { try copy(batch, in: $0) }
    let skipped = try store.transaction(storing: copies.flatMap(\.runs)) { transaction -> [Extent] in
      transaction.isMaintenance = true
      var skipped: [Extent] = []
      for copy in copies {
        let isMoved = try transaction.moveExtent(
          of: copy.resident.file, from: copy.resident.extent, to: copy.runs)
        if !isMoved { skipped += copy.runs }
      }
      return skipped
    }
    store.slabs.discard(skipped)
    let count = copies.reduce(0) { $0 + UInt64($1.resident.extent.storedByteCount) }
    receipt.copiedByteCount += count
    pace.advance(count, of: byteCount, control: control)
  }

  /// Copies runs back to back with as few writes as possible. A run that does not open is left out,
  /// and reported if it is still needed: a run that was replaced since the slab was searched may
  /// have been freed.
  private mutating func copy(_ batch: [Resident], in records: CatalogSnapshot) throws -> [Copy] {
    try store.workers.withContext { context in
      var copies: [Copy] = []
      var unit = SealedUnit(context)
      var last: (file: UInt64, runs: ExtentMap)?
      func write() throws {
        for run in try unit.append(to: store.slabs) { copies[run.owner].runs.append(run.extent) }
      }
      do {
        for resident in batch {
          var problem: (any Error)?
          do {
            problem = try verifyRun(
              resident.extent,
              key: store.keyring.fileKey(resident.file, epoch: resident.epoch, secret: resident.secret),
              slabs: store.slabs, context: context)
          } catch let failure as IOFailure where failure.isOfFile {
            problem = failure
          }
          if let problem {
            let runs = try last?.file == resident.file ? last?.runs : records.runs(of: resident.file)?.runs
            last = runs.map { (resident.file, $0) }
            if runs?.parted([resident.extent]).known.isEmpty == false {
              receipt.findings.append(Finding(.damage, .segmentDamaged, "file \(resident.file): \(problem)"))
            }
            continue
          }
          copies.append(Copy(resident: resident))
          var skipped = 0
          while skipped < resident.extent.count {
            let part = resident.extent.slice(
              skipping: skipped,
              count: min(Int(resident.extent.count) - skipped, SegmentLayout.segmentsPerUnit))
            if part.storedByteCount > unit.room { try write() }
            _ = try store.slabs.read(part.slab, part.offset, into: unit.space(part.storedByteCount))
            unit.add(part.run, of: copies.count - 1)
            skipped += Int(part.count)
          }
        }
        try write()
        return copies
      } catch {
        store.slabs.discard(copies.flatMap(\.runs))
        throw error
      }
    }
  }
}
