import EncryptedFile
import SodiumPrimitives
import Synchronization

/// The amount of data in a container's open files that is not stored yet.
final class DirtyTally: Sendable {
  /// Bytes of memory in dirty grains.
  let byteCount = Atomic<Int>(0)
  /// The number of files with changes that the catalog lacks.
  let fileCount = Atomic<Int>(0)
  /// Memory of released grains, kept because new memory from the system costs more than filling it.
  /// The memory is wiped when it is freed, at most some seconds after the last write.
  private let spares: Guarded<(kept: [UnsafeMutableRawBufferPointer], countMax: Int)>

  init(spareByteCountMax: Int = 0) { spares = Guarded(([], spareByteCountMax / DirtyGrain.byteCount)) }

  deinit { releaseSpares() }

  fileprivate func takeMemory() -> UnsafeMutableRawBufferPointer {
    byteCount.add(DirtyGrain.byteCount, ordering: .relaxed)
    return spares.withLock { $0.kept.popLast() } ?? .allocate(byteCount: DirtyGrain.byteCount, alignment: 64)
  }

  /// Returns the memory of a grain; `used` are the ranges that were written.
  fileprivate func giveBack(_ memory: UnsafeMutableRawBufferPointer, used: ByteRanges) {
    byteCount.subtract(DirtyGrain.byteCount, ordering: .relaxed)
    let isKept = spares.withLock { spares in
      guard spares.kept.count < spares.countMax else { return false }
      spares.kept.append(memory)
      return true
    }
    if isKept { return }
    for range in used.ranges { wipe(UnsafeMutableRawBufferPointer(rebasing: memory[range])) }
    memory.deallocate()
  }

  /// Wipes and frees the spare memory after a pause in writing; with `forGood`, none is kept later
  /// either.
  func releaseSpares(forGood: Bool = false) {
    let released = spares.withLock { spares in
      defer { spares = ([], forGood ? 0 : spares.countMax) }
      return spares.kept
    }
    for memory in released {
      wipe(memory)
      memory.deallocate()
    }
  }
}

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

/// The bytes of one grain that were written and are not stored yet.
///
/// Invariant for Sendable: a grain changes only with its node's lock held, and not at all while its
/// layer is frozen; workers read frozen grains without a lock.
final class DirtyGrain: @unchecked Sendable {
  private let memory: UnsafeMutableRawBufferPointer
  private(set) var valid = ByteRanges()
  private let tally: DirtyTally

  static let byteCount = SegmentLayout.plaintextByteCountMax

  init(_ tally: DirtyTally) {
    memory = tally.takeMemory()
    self.tally = tally
  }

  deinit {
    tally.giveBack(memory, used: valid)
  }

  /// The memory of the grain; only the bytes in ``valid`` are defined.
  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(memory) }

  func write(_ bytes: UnsafeRawBufferPointer, at position: Int) {
    let range = position..<(position + bytes.count)
    UnsafeMutableRawBufferPointer(rebasing: memory[range]).copyMemory(from: bytes)
    valid.insert(range)
  }

  /// Copies the valid bytes of `newer` over this grain.
  func write(over newer: DirtyGrain) {
    for range in newer.valid.ranges {
      write(UnsafeRawBufferPointer(rebasing: newer.bytes[range]), at: range.lowerBound)
    }
  }

  func forget(from position: Int) {
    for range in valid.ranges where range.upperBound > position {
      wipe(
        UnsafeMutableRawBufferPointer(rebasing: memory[max(range.lowerBound, position)..<range.upperBound]))
    }
    valid.remove(from: position)
  }

  /// Calls `body` for each piece of new bytes in a range of the grain.
  func forEach(in wanted: Range<Int>, _ body: (Int, UnsafeRawBufferPointer) -> Void) {
    for range in valid.ranges {
      let part = range.clamped(to: wanted)
      if !part.isEmpty { body(part.lowerBound, UnsafeRawBufferPointer(rebasing: bytes[part])) }
    }
  }
}

/// Changes of a file on top of an older state: first everything from `cut` on is removed, then the
/// grains' bytes are written.
struct DirtyLayer: Sendable {
  var grains: [UInt64: DirtyGrain] = [:]
  /// The smallest size since the layer was created.
  var cut: UInt64 = .max
  /// Whether the layer has any change, including one of the size alone.
  var isChanged = false
  /// The time of the last change, in nanoseconds since 1970-01-01 UTC.
  var modified: Int64 = 0

  static func grain(_ offset: UInt64) -> UInt64 { offset / UInt64(DirtyGrain.byteCount) }

  /// Removes everything from `size` on.
  mutating func truncate(to size: UInt64) {
    cut = min(cut, size)
    Self.truncate(&grains, to: size)
  }

  /// Merges an older layer into this one; its bytes apply where this layer has none.
  mutating func lay(over older: DirtyLayer) {
    var merged = older.grains
    if cut < .max { Self.truncate(&merged, to: cut) }
    for (index, grain) in grains {
      if let beneath = merged[index] { beneath.write(over: grain) } else { merged[index] = grain }
    }
    grains = merged
    cut = min(cut, older.cut)
    modified = isChanged ? modified : older.modified
    isChanged = isChanged || older.isChanged
  }

  private static func truncate(_ grains: inout [UInt64: DirtyGrain], to size: UInt64) {
    guard !grains.isEmpty else { return }
    let boundary = grain(size)
    let position = Int(size % UInt64(DirtyGrain.byteCount))
    for index in grains.keys.filter({ $0 > boundary || ($0 == boundary && position == 0) }) {
      grains[index] = nil
    }
    if position > 0, let grain = grains[boundary] {
      grain.forget(from: position)
      if grain.valid.isEmpty { grains[boundary] = nil }
    }
  }
}
