import EncryptedFile

/// A file's extents in the order of their starts. Each change of the map returns the changes to
/// make in the catalog and in the stored bytes.
///
/// A lookup of a grain is a binary search. A change takes time for the extents near it, and for a
/// copy of the array when their number changes.
struct ExtentMap: Sendable, Equatable {
  /// The sorted extents; no two cover the same grain.
  private(set) var extents: [Extent]

  /// The changes of catalog records and stored bytes that follow from a change of the map.
  struct Change: Sendable, Equatable {
    /// Records to put under the extents' starts. Never the first extent, which is stored in the
    /// inode.
    var puts: [Extent] = []
    /// Starts of records to delete.
    var deletes: [UInt64] = []
    /// Stored runs that the file no longer has: whole extents, or slices of them.
    var removed: [Extent] = []
  }

  /// A map of extents that were checked, see `EncryptedFileReader.checked`.
  init(checked extents: [Extent] = []) { self.extents = extents }

  /// The extent that is stored in the inode.
  var first: Extent? { extents.first }

  /// The index of the first extent that ends after `grain`.
  func index(endingAfter grain: UInt64) -> Int {
    var low = 0
    var high = extents.count
    while low < high {
      let middle = (low + high) / 2
      if extents[middle].end <= grain { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// The segment of a grain as a run of its own; nil in a hole.
  func segment(_ grain: UInt64) -> Extent? {
    let index = index(endingAfter: grain)
    guard index < extents.count, extents[index].start <= grain else { return nil }
    return extents[index].slice(skipping: Int(grain - extents[index].start), count: 1)
  }

  /// The stored parts of a range of grains, in order.
  func slices(_ grains: Range<UInt64>) -> [Extent] {
    var slices: [Extent] = []
    var index = index(endingAfter: grains.lowerBound)
    while index < extents.count, extents[index].start < grains.upperBound {
      if let slice = extents[index].part(in: grains) { slices.append(slice) }
      index += 1
    }
    return slices
  }

  /// Puts runs in place of the extents that covered their grains. `runs` are sorted by their starts
  /// and do not overlap.
  mutating func replace(with runs: [Extent]) -> Change {
    var change = Change()
    var edits: [Edit] = []
    var position = 0
    while position < runs.count {
      // Runs whose windows overlap are one edit. A window includes a neighbour on each side, since
      // the runs may continue it.
      var window = window(of: runs[position])
      var end = position + 1
      while end < runs.count {
        let next = self.window(of: runs[end])
        // A window is empty only when the whole map is empty.
        guard next.lowerBound < window.upperBound || window.isEmpty else { break }
        window = window.lowerBound..<max(window.upperBound, next.upperBound)
        end += 1
      }
      edits.append(edit(window, with: runs[position..<end], cutting: nil, &change))
      position = end
    }
    apply(edits)
    return change
  }

  /// Replaces an extent by the same segments at other locations. Returns false when the extent is
  /// not in the map. No extents are joined, since their records in the catalog are not.
  mutating func move(_ old: Extent, to places: [Extent]) -> Bool {
    let index = index(endingAfter: old.start)
    guard index < extents.count, extents[index] == old else { return false }
    if places.count == 1 {
      extents[index] = places[0]
    } else {
      extents.replaceSubrange(index...index, with: places)
    }
    return true
  }

  /// Removes everything from a grain on.
  mutating func remove(from grain: UInt64) -> Change {
    let begin = index(endingAfter: grain)
    guard begin < extents.count else { return Change() }
    var change = Change()
    apply([edit(begin..<extents.count, with: [], cutting: grain, &change)])
    return change
  }

  private struct Edit {
    var window: Range<Int>
    var replacement: [Extent]
  }

  private func window(of run: Extent) -> Range<Int> {
    let begin = index(endingAfter: run.start)
    var end = begin
    while end < extents.count, extents[end].start < run.end { end += 1 }
    return max(begin - 1, 0)..<min(end + 1, extents.count)
  }

  private func edit(
    _ window: Range<Int>, with runs: ArraySlice<Extent>, cutting cut: UInt64?, _ change: inout Change
  ) -> Edit {
    var rows = [Extent](runs)
    var rest = runs
    for extent in extents[window] {
      // The parts between the runs are kept; the others are removed.
      var position = extent.start
      while let run = rest.first, run.end <= extent.start { rest = rest.dropFirst() }
      for run in rest {
        guard run.start < extent.end else { break }
        if position < run.start, let kept = extent.part(in: position..<run.start) { rows.append(kept) }
        if let gone = extent.part(in: run.start..<run.end) { change.removed.append(gone) }
        position = run.end
      }
      let end = min(extent.end, max(cut ?? .max, extent.start))
      if position < end, let kept = extent.part(in: position..<end) { rows.append(kept) }
      if end < extent.end, let gone = extent.part(in: end..<extent.end) { change.removed.append(gone) }
    }
    rows.sort { $0.start < $1.start }
    var replacement: [Extent] = []
    for row in rows {
      if let last = replacement.last, let joined = last.joined(with: row) {
        replacement[replacement.count - 1] = joined
      } else {
        replacement.append(row)
      }
    }
    compare(window, with: replacement, &change)
    return Edit(window: window, replacement: replacement)
  }

  /// Adds to `change` the records that differ between a window and its replacement. Both are
  /// sorted; only the very first extent of the file has no record.
  private func compare(_ window: Range<Int>, with replacement: [Extent], _ change: inout Change) {
    var old = window.lowerBound
    var new = 0
    let isFirst = window.lowerBound == 0
    while old < window.upperBound || new < replacement.count {
      let oldHasRecord = old > 0
      let newHasRecord = !(isFirst && new == 0)
      if new == replacement.count || (old < window.upperBound && extents[old].start < replacement[new].start)
      {
        if oldHasRecord { change.deletes.append(extents[old].start) }
        old += 1
      } else if old == window.upperBound || replacement[new].start < extents[old].start {
        if newHasRecord { change.puts.append(replacement[new]) }
        new += 1
      } else {
        if newHasRecord, !oldHasRecord || extents[old] != replacement[new] {
          change.puts.append(replacement[new])
        }
        if oldHasRecord, !newHasRecord { change.deletes.append(extents[old].start) }
        old += 1
        new += 1
      }
    }
  }

  /// Applies edits whose windows are in order and do not overlap.
  private mutating func apply(_ edits: [Edit]) {
    if edits.allSatisfy({ $0.window.count == $0.replacement.count }) {
      for edit in edits {
        for (index, extent) in zip(edit.window, edit.replacement) { extents[index] = extent }
      }
      return
    }
    if edits.count == 1 {
      extents.replaceSubrange(edits[0].window, with: edits[0].replacement)
      return
    }
    var rows: [Extent] = []
    rows.reserveCapacity(extents.count + edits.reduce(0) { $0 + $1.replacement.count })
    var position = 0
    for edit in edits {
      rows.append(contentsOf: extents[position..<edit.window.lowerBound])
      rows.append(contentsOf: edit.replacement)
      position = edit.window.upperBound
    }
    rows.append(contentsOf: extents[position...])
    extents = rows
  }
}

extension Extent {
  /// The part of the run that lies in a range of grains; nil when there is none.
  func part(in grains: Range<UInt64>) -> Extent? {
    let begin = max(start, grains.lowerBound)
    let end = min(end, grains.upperBound)
    guard begin < end else { return nil }
    return slice(skipping: Int(begin - start), count: Int(end - begin))
  }

  /// One run in place of two, when `next` continues this one in the file, in the counters and in
  /// the slab; otherwise nil.
  func joined(with next: Extent) -> Extent? {
    guard end == next.start, lastLength == UInt32(SegmentLayout.plaintextByteCountMax), slab == next.slab,
      offset + UInt64(storedByteCount) == next.offset,
      writeNumber.advanced(by: Int(count)) == next.writeNumber
    else { return nil }
    var joined = self
    joined.count += next.count
    joined.lastLength = next.lastLength
    return joined
  }
}
