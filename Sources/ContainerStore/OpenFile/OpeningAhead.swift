import SodiumPrimitives

/// The task of a worker that opens a unit, and its result.
///
/// The task does not keep its container alive, so that no worker thread releases the container
/// last: `UnitAhead` keeps it alive and waits for the worker.
final class OpeningAhead: @unchecked Sendable {
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
