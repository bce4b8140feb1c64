import EncryptedFile
import SodiumPrimitives

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
    tally.giveBack(memory)
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
