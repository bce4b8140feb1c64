/// Dead bytes of a slab that died during this opening: sorted ranges that do not touch.
struct DeadRanges {
  private(set) var ranges: [Range<UInt64>] = []
  /// Ranges that ``takeUnpunched()`` has returned. A range that has grown since counts as another
  /// one.
  private var punched: Set<Range<UInt64>> = []
  /// The maximum number of ranges that are remembered. Compaction finds the forgotten ones.
  private static let countMax = 8192

  /// Adds a range that was alive. Returns its union with its neighbours, and the neighbours.
  mutating func insert(_ range: Range<UInt64>) -> (
    whole: Range<UInt64>, before: Range<UInt64>?, after: Range<UInt64>?
  ) {
    var low = 0
    var high = ranges.count
    while low < high {
      let middle = (low + high) / 2
      if ranges[middle].lowerBound < range.lowerBound { low = middle + 1 } else { high = middle }
    }
    let before = low > 0 && ranges[low - 1].upperBound == range.lowerBound ? ranges[low - 1] : nil
    let after = low < ranges.count && ranges[low].lowerBound == range.upperBound ? ranges[low] : nil
    let whole =
      (before?.lowerBound ?? range.lowerBound)..<(after?.upperBound ?? range.upperBound)
    let replaced = (before == nil ? low : low - 1)..<(after == nil ? low : low + 1)
    if !replaced.isEmpty || ranges.count < Self.countMax {
      ranges.replaceSubrange(replaced, with: CollectionOfOne(whole))
    }
    return (whole, before, after)
  }

  /// The ranges that were not returned before.
  mutating func takeUnpunched() -> [Range<UInt64>] {
    defer { punched = Set(ranges) }
    return ranges.filter { !punched.contains($0) }
  }

  /// Removes everything from an offset on: the slab was cut there, and will be written anew.
  mutating func remove(from offset: UInt64) {
    while let last = ranges.last, last.upperBound > offset {
      ranges.removeLast()
      if last.lowerBound < offset { ranges.append(last.lowerBound..<offset) }
    }
  }
}
