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
