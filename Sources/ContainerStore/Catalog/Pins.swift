import EncryptedFile

/// Versions of files that messages in the outbox need.
///
/// A pin names the runs of a version a second time: nothing is copied, and the runs are counted
/// once. Runs that the file gives up later stay as long as a pin names them, and are removed with
/// the last such pin.
extension CatalogReading {
  /// The pins of a file, in order.
  func pins(of file: UInt64) throws -> [Pin] {
    var pins: [Pin] = []
    try scan(.pins(ofFile: file)) { key, _ in
      guard key.bytes.count == 21, let pin = key.pin(at: 9) else {
        throw ContainerError(.catalogDamaged, detail: "a pin of a file that cannot be")
      }
      pins.append(pin)
    }
    return pins
  }

  func pinnedFile(_ pin: Pin) throws -> PinnedFile {
    guard let bytes = try value(.pinned(pin)) else {
      throw ContainerError(.catalogDamaged, detail: "a pin without an attachment")
    }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try PinnedFile(bytes) }
  }

  /// The extents of a pinned version that cover some grains, in order. Others may be among them.
  func extents(of file: PinnedFile, _ pin: Pin, near grains: Range<UInt64> = 0..<(.max)) throws -> [Extent] {
    guard let first = file.inode.firstExtent else { return [] }
    if first.end >= SegmentLayout.segmentCount(file.inode.size) || first.end >= grains.upperBound {
      return [first]
    }
    // An extent that begins before the grains may reach into them.
    let begin = grains.lowerBound > Self.runMax ? grains.lowerBound - Self.runMax : 0
    var extents = [first]
    try scanExtents(pin, from: begin) { extent in
      guard extent.start < grains.upperBound else { return false }
      extents.append(extent)
      return true
    }
    return extents
  }

  /// The first `limit` extents of a pinned version that end after a grain, in order, of those that
  /// begin after `start`. Fewer: there are no others.
  func extents(
    of file: PinnedFile, _ pin: Pin, after start: UInt64?, endingAfter grain: UInt64, limit: Int
  ) throws -> [Extent] {
    guard let first = file.inode.firstExtent else { return [] }
    var extents: [Extent] = []
    if start == nil, first.end > grain { extents.append(first) }
    if first.end >= SegmentLayout.segmentCount(file.inode.size) { return extents }
    let begin = start.map { $0 + 1 } ?? (grain > Self.runMax ? grain - Self.runMax : 0)
    guard extents.count < limit else { return extents }
    try scanExtents(pin, from: begin) { extent in
      if extent.end > grain { extents.append(extent) }
      return extents.count < limit
    }
    return extents
  }

  /// Calls `body` for the extents of a pinned version that begin at a grain or later, without the
  /// one in its inode, in order, until it returns false.
  private func scanExtents(_ pin: Pin, from grain: UInt64, _ body: (Extent) -> Bool) throws {
    let prefix = CatalogKey.pinnedExtents(pin)
    var cursor = try cursor(from: .pinnedExtent(pin, start: grain))
    while let (key, value) = try cursor.nextLive(), key.hasPrefix(prefix) {
      let extent = try Self.decode(value) { bytes throws(MalformedBytes) in
        try Extent(pinnedKey: key, value: bytes)
      }
      guard body(extent) else { return }
    }
  }

  /// Segments of a run at most: an extent that begins so many grains before one does not reach it.
  private static var runMax: UInt64 { SlabStore.byteCountMax / UInt64(SegmentLayout.storedByteCountMax) + 1 }

  /// The slabs that hold pinned versions, wholly or in part.
  func pinnedSlabs() throws -> Set<UInt32> {
    var slabs: Set<UInt32> = []
    try scan(.all(.pinned)) { _, value in
      let pinned = try Self.decode(value) { bytes throws(MalformedBytes) in try PinnedFile(bytes) }
      if let first = pinned.inode.firstExtent { slabs.insert(first.slab) }
    }
    try scan(.all(.pinnedExtent)) { key, value in
      let extent = try Self.decode(value) { bytes throws(MalformedBytes) in
        try Extent(pinnedKey: key, value: bytes)
      }
      slabs.insert(extent.slab)
    }
    return slabs
  }

  /// The parts of some runs that no pin needs. The file has these runs, or had them.
  func unpinned(_ extents: [Extent], of file: UInt64) throws -> [Extent] {
    guard let begin = extents.map(\.start).min(), let end = extents.map(\.end).max() else { return [] }
    var rest = extents
    for pin in try pins(of: file) where !rest.isEmpty {
      let pinned = try self.extents(of: pinnedFile(pin), pin, near: begin..<end)
      rest = ExtentMap(checked: pinned).parted(rest).unknown
    }
    return rest
  }
}

extension ExtentMap {
  /// The parts of runs that this map has at the same locations, and the parts that it does not
  /// have. The runs need not be in order.
  func parted(_ runs: [Extent]) -> (known: [Extent], unknown: [Extent]) {
    var known: [Extent] = []
    var unknown: [Extent] = []
    for run in runs {
      var position = run.start
      for slice in slices(run.start..<run.end) {
        // Two runs that have one segment in common have all of them, as far as both reach.
        guard run.part(in: slice.start..<slice.end) == slice else { continue }
        if position < slice.start { unknown.append(run.part(in: position..<slice.start)!) }
        known.append(slice)
        position = slice.end
      }
      if position < run.end { unknown.append(run.part(in: position..<run.end)!) }
    }
    return (known, unknown)
  }
}

extension Extent {
  /// Decodes a record of type `72`.
  init(pinnedKey key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard key.bytes.count == 21, let start = key.number(at: 13) else {
      throw MalformedBytes(what: "an extent of an attachment without a start")
    }
    var reader = ByteReader(value)
    try self.init(start: start, value: &reader)
    try reader.end()
  }
}
