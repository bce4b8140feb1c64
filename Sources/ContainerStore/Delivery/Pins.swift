import EncryptedFile

/// Versions of files that messages in the outbox need.
///
/// A version is pinned by naming its runs a second time: nothing is copied, and the runs are counted once. What the file gives up
/// later stays as long as a pin names it, and goes with the last pin that does.
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

  /// Of a pinned version, what is stored of some grains and perhaps of others, in order.
  func extents(of file: PinnedFile, _ pin: Pin, near grains: Range<UInt64> = 0..<(.max)) throws -> [Extent] {
    guard let first = file.inode.firstExtent else { return [] }
    if first.end >= SegmentLayout.segmentCount(file.inode.size) || first.end >= grains.upperBound {
      return [first]
    }
    var extents = [first]
    // An extent that begins before the grains may reach into them, but no further than a slab is long.
    let runMax = SlabStore.byteCountMax / UInt64(SegmentLayout.storedByteCountMax) + 1
    let begin = grains.lowerBound > runMax ? grains.lowerBound - runMax : 0
    let prefix = CatalogKey.pinnedExtents(pin)
    var cursor = try cursor(from: .pinnedExtent(pin, start: begin))
    while let (key, value) = try cursor.nextLive(), key.hasPrefix(prefix) {
      let extent = try Self.decode(value) { bytes throws(MalformedBytes) in
        try Extent(pinnedKey: key, value: bytes)
      }
      guard extent.start < grains.upperBound else { break }
      extents.append(extent)
    }
    return extents
  }

  /// The slabs in which pinned versions stand, wholly or in part.
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

  /// What of some runs that a file has, or had, no pin needs.
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

extension Transaction {
  /// Keeps the version that a file has now for a message in the outbox. `extents` are all of it, checked.
  func pin(_ found: FoundFile, extents: [Extent], path: [UInt8], as pin: Pin) {
    put(.pinned(pin), PinnedFile(file: found.id, path: path, inode: found.inode).encoded)
    for extent in extents.dropFirst() { put(.pinnedExtent(pin, start: extent.start), extent.encodedValue) }
    put(.pin(ofFile: found.id, pin), [])
  }

  /// Lets go of a version: what neither the file nor another pin needs is freed.
  func unpin(_ pin: Pin) throws {
    let pinned = try pinnedFile(pin)
    let extents = try extents(of: pinned, pin)
    for extent in extents.dropFirst() { delete(.pinnedExtent(pin, start: extent.start)) }
    delete(.pinned(pin))
    delete(.pin(ofFile: pinned.file, pin))
    var rest = extents
    if let bytes = try value(.inode(pinned.file)) {
      let inode = try Self.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
      rest = ExtentMap(checked: try self.extents(pinned.file, inode)).parted(rest).unknown
    }
    letGo(try unpinned(rest, of: pinned.file), of: pinned.file)
  }
}

extension ExtentMap {
  /// Which parts of runs this map has, in the same places, and which it does not. The runs need not be in order.
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
  /// A record of type `72`.
  init(pinnedKey key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard key.bytes.count == 21, let start = key.number(at: 13) else {
      throw MalformedBytes(what: "an extent of an attachment without a start")
    }
    var reader = ByteReader(value)
    try self.init(start: start, value: &reader)
    try reader.end()
  }
}
