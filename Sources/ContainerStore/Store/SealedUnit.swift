import EncryptedFile

/// A sealed and stored run of a file.
struct StoredRun: Sendable {
  /// The file of the run, as an index that the caller of the sealing defines.
  var owner: Int
  var extent: Extent
}

/// Sealed runs that are appended to a slab with one write. The output buffer of a context collects
/// them; it holds 64 whole segments.
struct SealedUnit {
  let context: WorkerContext
  /// The runs, whose offsets count from the beginning of the unit and whose slab is 0.
  private(set) var runs: [StoredRun] = []
  /// The total of sealed bytes.
  private(set) var byteCount = 0

  init(_ context: WorkerContext) { self.context = context }

  var sealed: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: context.output[0..<byteCount]) }

  /// The number of stored bytes for which there is room.
  var room: Int { context.output.count - byteCount }

  /// Memory for the next sealed bytes. They belong to the unit after ``add(_:of:)``.
  func space(_ count: Int) -> UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: context.output[byteCount..<(byteCount + count)])
  }

  /// Adds a run whose sealed bytes are in ``space(_:)``. A run that continues the previous one is
  /// joined with it.
  mutating func add(_ run: SegmentRun, of owner: Int) {
    let extent = Extent(run, slab: 0, offset: UInt64(byteCount))
    byteCount += run.storedByteCount
    if let last = runs.last, last.owner == owner, let joined = last.extent.joined(with: extent) {
      runs[runs.count - 1].extent = joined
    } else {
      runs.append(StoredRun(owner: owner, extent: extent))
    }
  }

  /// Adds runs whose sealed bytes `seal` appends to its output, one after the other. Adds nothing
  /// when `seal` throws.
  mutating func add(
    _ added: some Collection<SegmentRun>, of owner: Int, sealedBy seal: (inout OutputRawSpan) throws -> Void
  ) rethrows {
    var output = OutputRawSpan(
      buffer: space(added.reduce(0) { $0 + $1.storedByteCount }), initializedCount: 0)
    try seal(&output)
    precondition(output.freeCapacity == 0, "the sealed bytes are those of the runs")
    for run in added { add(run, of: owner) }
  }

  /// The runs at the location to which the unit was appended.
  func runs(at location: SlabStore.Location) -> [StoredRun] {
    runs.map { run in
      var run = run
      run.extent.slab = location.slab
      run.extent.offset += location.offset
      return run
    }
  }

  /// Appends the unit to a slab and returns its runs; the unit is empty afterwards.
  mutating func append(to slabs: SlabStore, sharing slab: SharedSlab? = nil) throws(IOFailure) -> [StoredRun]
  {
    guard byteCount > 0 else { return [] }
    let stored = runs(at: try slabs.append(sealed, sharing: slab))
    removeAll()
    return stored
  }

  mutating func removeAll() {
    runs.removeAll(keepingCapacity: true)
    byteCount = 0
  }
}
