import EncryptedFile
import SodiumPrimitives

/// Memory of a caller that several threads fill, each a part of its own.
struct SharedTarget: @unchecked Sendable {
  // Invariant: nobody uses a part of it but the one thread that fills it, until all of them are done.
  let bytes: UnsafeMutableRawBufferPointer
}

/// A unit of a file that a worker thread opens before it is asked for. Waits for that before it goes.
final class UnitAhead: @unchecked Sendable {
  // Invariant: what varies is touched only by the one read that has the handle's cursor.
  private(set) var offset: UInt64
  private let container: Container
  private let work: OpeningAhead
  private var ticket: WorkerThreads.Ticket

  static let byteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax

  /// Begins to open the unit at `offset`, a multiple of its size.
  init(_ node: FileNode, at offset: UInt64, of container: Container) {
    let work = OpeningAhead(node, at: offset, of: container)
    self.offset = offset
    self.container = container
    self.work = work
    ticket = container.workers.begin { _ in work.run() }
  }

  deinit { container.workers.wait(for: ticket) }

  /// Opens another unit, in the same memory.
  func begin(at offset: UInt64) {
    container.workers.wait(for: ticket)
    work.offset = offset
    self.offset = offset
    let work = work
    ticket = container.workers.begin { _ in work.run() }
  }

  /// Copies from `position`, which is in the unit, as far as the file goes. Nil when it could not be opened, or the file was written
  /// to since.
  func copy(from position: UInt64, into target: UnsafeMutableRawBufferPointer) -> Int? {
    container.workers.wait(for: ticket)
    return work.copy(from: Int(position - offset), into: target)
  }
}

/// What a worker does for a unit, and what it has opened.
///
/// It does not keep its container alive, so that no worker thread is the last to let that go: the unit does, and waits for the worker.
private final class OpeningAhead: @unchecked Sendable {
  // Invariant: everything belongs to the worker until its work has ended, and then to whoever has waited for that.
  private let memory: UnsafeMutableRawBufferPointer
  private var outcome: (count: Int, contentNumber: UInt64)?
  private unowned let container: Container
  private let node: FileNode
  var offset: UInt64

  init(_ node: FileNode, at offset: UInt64, of container: Container) {
    self.node = node
    self.offset = offset
    self.container = container
    memory = .allocate(byteCount: UnitAhead.byteCount, alignment: 4096)
  }

  deinit {
    wipe(memory)
    memory.deallocate()
  }

  func run() {
    let number = node.contentNumber
    var opened = OpenedSegment()
    defer { opened.wipeBytes() }
    // What fails is read again by whoever wants it, and reported to him.
    let count = try? node.read(at: offset, into: memory, of: container, keeping: &opened, isScratch: true)
    outcome = count.map { ($0, number) }
  }

  func copy(from position: Int, into target: UnsafeMutableRawBufferPointer) -> Int? {
    guard let outcome, outcome.contentNumber == node.contentNumber else { return nil }
    let count = max(0, min(target.count, outcome.count - position))
    if count > 0 {
      target.copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[position..<(position + count)]))
    }
    return count
  }
}

/// What a handle keeps from one read for the next.
struct ReadCursor: Sendable {
  var opened = OpenedSegment()
  /// Where the last read ended.
  private var end: UInt64?
  /// So many bytes were read in order.
  private var byteCountInOrder: UInt64 = 0
  private var units: [UnitAhead] = []
  /// Whose memory is free.
  private var spares: [UnitAhead] = []

  /// From here on it is likely that the file is read to its end.
  private static let byteCountMin: UInt64 = 256 << 10
  private static let unitCountMax = 3

  /// A read begins; what was opened ahead for another place goes.
  mutating func begin(at offset: UInt64, count: Int) {
    if offset != end { byteCountInOrder = 0 }
    byteCountInOrder += UInt64(count)
    if byteCountInOrder == UInt64(count) { (units, spares) = ([], []) }
  }

  /// Nil when the place was not opened ahead.
  mutating func copy(from position: UInt64, into target: UnsafeMutableRawBufferPointer) -> Int? {
    while let unit = units.first, unit.offset + UInt64(UnitAhead.byteCount) <= position { spare() }
    guard let unit = units.first, unit.offset <= position else { return nil }
    let count = unit.copy(from: position, into: target)
    if count == nil { while !units.isEmpty { spare() } }
    return count
  }

  private mutating func spare() { spares.append(units.removeFirst()) }

  /// A read ended at `position`: opens what comes next.
  mutating func end(at position: UInt64, of node: FileNode, in container: Container) {
    end = position
    guard byteCountInOrder >= Self.byteCountMin else { return }
    let size = node.size
    // An offset may be any number.
    guard position < size else {
      while !units.isEmpty { spare() }
      return
    }
    let unitByteCount = UInt64(UnitAhead.byteCount)
    while let unit = units.first, unit.offset + unitByteCount <= position { spare() }
    // The unit that is being read from, unless it was opened ahead, is read by whoever reads.
    var next =
      units.last.map { $0.offset + unitByteCount }
      ?? (position + unitByteCount - 1) / unitByteCount * unitByteCount
    while units.count < Self.unitCountMax, next < size, !container.isClosed {
      if let unit = spares.popLast() {
        unit.begin(at: next)
        units.append(unit)
      } else {
        units.append(UnitAhead(node, at: next, of: container))
      }
      next += unitByteCount
    }
  }

  /// Wipes, and waits for what is under way.
  mutating func clear() {
    opened.wipeBytes()
    (units, spares) = ([], [])
    end = nil
  }
}
