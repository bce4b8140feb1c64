/// Byte ranges in a grain: sorted, not adjacent to each other, none empty.
struct ByteRanges: Sendable, Equatable {
  private(set) var ranges: [Range<Int>] = []

  var isEmpty: Bool { ranges.isEmpty }

  mutating func insert(_ range: Range<Int>) {
    guard !range.isEmpty else { return }
    guard let begin = ranges.firstIndex(where: { $0.upperBound >= range.lowerBound }) else {
      ranges.append(range)
      return
    }
    var end = begin
    var joined = range
    while end < ranges.count, ranges[end].lowerBound <= range.upperBound {
      joined =
        min(joined.lowerBound, ranges[end].lowerBound)..<max(joined.upperBound, ranges[end].upperBound)
      end += 1
    }
    ranges.replaceSubrange(begin..<end, with: CollectionOfOne(joined))
  }

  mutating func remove(from position: Int) {
    ranges.removeAll { $0.lowerBound >= position }
    if let last = ranges.last, last.upperBound > position {
      ranges[ranges.count - 1] = last.lowerBound..<position
    }
  }

  func covers(_ range: Range<Int>) -> Bool {
    range.isEmpty
      || ranges.contains { $0.lowerBound <= range.lowerBound && range.upperBound <= $0.upperBound }
  }
}
