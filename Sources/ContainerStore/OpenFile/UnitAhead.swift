import EncryptedFile
import SodiumPrimitives

/// Memory of a caller that several threads fill, each thread its own part.
struct SharedTarget: @unchecked Sendable {
  // Invariant: only the one thread that fills a part accesses it, until all threads are done.
  let bytes: UnsafeMutableRawBufferPointer
}

/// A unit of a file that a worker thread opens before it is requested. Its deinit waits for the
/// worker.
final class UnitAhead: @unchecked Sendable {
  // Invariant: only the one read that has the handle's cursor accesses the mutable properties.
  private(set) var offset: UInt64
  private let store: Store
  private let work: OpeningAhead
  private var ticket: WorkerThreads.Ticket

  static let byteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax

  /// Starts to open the unit at `offset`, a multiple of the unit size.
  init(_ node: FileNode, at offset: UInt64, of store: Store) {
    let work = OpeningAhead(node, at: offset, of: store)
    self.offset = offset
    self.store = store
    self.work = work
    ticket = store.workers.threads.begin { _ in work.run() }
  }

  deinit { store.workers.threads.wait(for: ticket) }

  /// Starts to open another unit in the same memory.
  func begin(at offset: UInt64) {
    store.workers.threads.wait(for: ticket)
    work.offset = offset
    self.offset = offset
    let work = work
    ticket = store.workers.threads.begin { _ in work.run() }
  }

  /// Copies from `position`, an offset in the unit, up to the end of the file. Returns nil if the
  /// unit could not be opened, or if the file was written to since.
  func copy(from position: UInt64, into target: UnsafeMutableRawBufferPointer) -> Int? {
    store.workers.threads.wait(for: ticket)
    return work.copy(from: Int(position - offset), into: target)
  }
}

/// The task of a worker that opens a unit, and its result.
///
/// The task does not keep its container alive, so that no worker thread releases the container
/// last: `UnitAhead` keeps it alive and waits for the worker.
private final class OpeningAhead: @unchecked Sendable {
  // Invariant: the mutable properties belong to the worker until its task has ended, and then to
  // the thread that has waited for the task.
  private let memory: UnsafeMutableRawBufferPointer
  private var outcome: (count: Int, contentNumber: UInt64)?
  private unowned let store: Store
  private let node: FileNode
  var offset: UInt64

  init(_ node: FileNode, at offset: UInt64, of store: Store) {
    self.node = node
    self.offset = offset
    self.store = store
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
    // The caller reads the unit again after an error, and reports it then.
    let count = try? node.read(at: offset, into: memory, of: store, keeping: &opened, isScratch: true)
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
