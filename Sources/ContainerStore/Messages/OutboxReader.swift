import EncryptedFile
import Locks
import SodiumPrimitives

/// Reads the contents of a message's files as they are stored, frame by frame, in the versions of
/// the time when the message was queued. Any thread may call; calls are serialized.
package final class OutboxReader: Sendable {
  private let store: Store
  private let number: UInt64
  private let byteCount: UInt64
  private let state: Guarded<State>

  private struct State {
    /// The position in the contents, and where that is.
    var position: UInt64 = 0
    /// Index of the first file in `files`.
    var index: UInt64 = 0
    /// The next files, as far as they were read from the catalog.
    var files: [PinnedFile] = []
    /// Offset in the first of `files`: a grain's boundary.
    var offset: UInt64 = 0
    var opened: OpenedFile?
  }

  /// What is known of the file that is being read.
  private struct OpenedFile {
    let index: UInt64
    let key: SharedFileKey
    /// The next runs, in order; the version never changes while the message is in the outbox.
    var extents: [Extent] = []
    /// The last run that was found.
    var last: Extent?
    /// No further one follows.
    var isWhole = false
  }

  /// The frame that was read, as bytes in the caller's memory.
  package struct Frame: Sendable, Equatable {
    package var blockByteCount: Int
    package var contentsByteCount: Int
    /// Index of the last file that a part of was described.
    package var lastFile: UInt64
    package var isLast: Bool
  }

  /// Files and runs that are read from the catalog at once.
  private static let fileCountAhead = 256
  private static let runCountAhead = 256
  /// Empty files that are passed over for one frame once it describes something.
  private static let emptyFileCountMax = 4096
  private static let grain = SegmentFrame.grain

  /// Throws `invalidArgument` when `position` is past the end or at no grain's boundary.
  fileprivate init(_ store: Store, _ entry: OutboxEntry, from position: UInt64) throws {
    self.store = store
    number = entry.number
    byteCount = entry.byteCount
    guard position <= byteCount else {
      throw ContainerError(
        .invalidArgument, detail: "the message has \(byteCount) bytes, asked for \(position)")
    }
    state = Guarded(State())
    try store.withSnapshot { records in
      try state.withLock { state in try seek(position, in: records, &state) }
    }
  }

  private func seek(_ position: UInt64, in records: CatalogSnapshot, _ state: inout State) throws {
    while let file = try nextFile(in: records, &state), file.inode.size <= position - state.position {
      pass(file, &state)
    }
    state.offset = position - state.position
    state.position = position
    guard state.offset % Self.grain == 0 else {
      throw ContainerError(.invalidArgument, detail: "the contents cannot begin at byte \(position)")
    }
  }

  /// Index of the file that contains the next byte, or of an empty one before it, and the number of
  /// its bytes that were read. At the end, the number of files.
  package var place: (fileIndex: UInt64, byteCount: UInt64) { state.withLock { ($0.index, $0.offset) } }

  /// Reads the next frame: its encoding into `block`, the stored segments into `contents`, each with
  /// room for the longest. To be called until a frame is the last one. Throws `fileDamaged` with the
  /// path of the original, and `noSuchFile` if the message has left the outbox.
  package func next(
    block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer
  ) throws -> Frame {
    try state.withLock { state in
      // The snapshot keeps the runs that the pins name from being freed.
      try store.withSnapshot { records in
        _ = try records.outboxEntry(number)
        return try next(block, contents, in: records, &state)
      }
    }
  }

  private func next(
    _ block: UnsafeMutableRawBufferPointer, _ contents: UnsafeMutableRawBufferPointer,
    in records: CatalogSnapshot, _ state: inout State
  ) throws -> Frame {
    var writer = SegmentFrameWriter(block)
    var filled = 0
    var (fileCount, emptyFileCount) = (0, 0)
    let begin = state.position
    var lastFile = state.index
    while let file = try nextFile(in: records, &state) {
      if file.inode.size == 0 {
        guard emptyFileCount < Self.emptyFileCountMax || state.position == begin else { break }
        emptyFileCount += 1
        pass(file, &state)
        continue
      }
      guard fileCount < SegmentFrame.fileCountMax, writer.segmentCount < SegmentFrame.segmentCountMax else {
        break
      }
      do {
        let room = min(contents.count, SegmentFrame.contentsByteCountMax) - filled
        guard let run = try nextRun(of: file, room, writer.segmentCount, in: records, &state) else {
          // The rest of the file is a hole.
          lastFile = state.index
          fileCount += 1
          pass(file, &state)
          continue
        }
        guard run.storedByteCount <= room else { break }
        let target = UnsafeMutableRawBufferPointer(
          rebasing: contents[filled..<(filled + run.storedByteCount)])
        let count = try store.slabs.read(run.slab, run.offset, into: target)
        guard count == run.storedByteCount else {
          let whole = UInt64(count / SegmentLayout.storedByteCountMax)
          throw SegmentError.missingBytes(grain: run.start + whole)
        }
        try state.opened!.key.key.writeSegmentKeys(of: run.run, to: writer.keys(Int(run.count)))
        writer.add(run.run, of: UInt32(state.index))
        filled += run.storedByteCount
        lastFile = state.index
        advance(to: min(file.inode.size, run.end * Self.grain), &state)
      } catch {
        // The frame ends before the damage; the next call meets it again.
        if state.position > begin { break }
        throw store.translated(error, path: file.pathText)
      }
      guard state.offset == file.inode.size else { continue }
      fileCount += 1
      pass(file, &state)
    }
    return Frame(
      blockByteCount: writer.finish(end: state.position), contentsByteCount: filled,
      lastFile: lastFile, isLast: state.position == byteCount)
  }

  /// Opens the stored segment at a position that the receiver could not open. Does nothing when there
  /// is a hole. Throws as ``next(block:contents:)`` does.
  package func check(at position: UInt64) throws {
    var state = State()
    try store.withSnapshot { records in
      _ = try records.outboxEntry(number)
      try seek(position, in: records, &state)
      guard let file = try nextFile(in: records, &state),
        let run = try nextRun(of: file, SegmentLayout.storedByteCountMax, 0, in: records, &state),
        run.start == state.offset / Self.grain
      else { return }
      try store.workers.withContext { context in
        do {
          let segment = run.slice(skipping: 0, count: 1)
          let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<segment.storedByteCount])
          let count = try store.slabs.read(segment.slab, segment.offset, into: stored)
          try context.cipher.check(
            stored.bytes.extracting(first: count), of: segment.run, key: state.opened!.key.key)
        } catch {
          throw store.translated(error, path: file.pathText)
        }
      }
    }
  }

  // MARK: Files and runs

  private func advance(to offset: UInt64, _ state: inout State) {
    state.position += offset - state.offset
    state.offset = offset
  }

  private func pass(_ file: PinnedFile, _ state: inout State) {
    advance(to: file.inode.size, &state)
    state.index += 1
    state.offset = 0
    state.files.removeFirst()
    state.opened = nil
  }

  /// The file that contains the next byte, or an empty one before it; nil at the end.
  private func nextFile(in records: CatalogSnapshot, _ state: inout State) throws -> PinnedFile? {
    if state.files.isEmpty {
      state.files = try records.pinnedFiles(number, from: state.index, limit: Self.fileCountAhead)
    }
    return state.files.first
  }

  /// The next stored run of a file: as many whole segments as there is room for, one at least. Nil
  /// when none is left.
  private func nextRun(
    of file: PinnedFile, _ room: Int, _ segmentCount: Int, in records: CatalogSnapshot, _ state: inout State
  ) throws -> Extent? {
    if state.opened?.index != state.index {
      state.opened = OpenedFile(
        index: state.index, key: SharedFileKey(try store.fileKey(file.file, file.inode)))
    }
    let grain = state.offset / Self.grain
    state.opened!.extents.removeAll { $0.end <= grain }
    while state.opened!.extents.isEmpty, !state.opened!.isWhole {
      try findRuns(of: file, from: grain, in: records, &state)
    }
    guard let extent = state.opened!.extents.first else { return nil }
    let skipped = Int(max(grain, extent.start) - extent.start)
    let countMax = min(SegmentFrame.segmentCountMax - segmentCount, SegmentLayout.segmentsPerUnit)
    let slice = extent.slice(skipping: skipped, count: min(Int(extent.count) - skipped, countMax))
    guard slice.storedByteCount > room, room >= SegmentLayout.storedByteCountMax else { return slice }
    return slice.slice(skipping: 0, count: room / SegmentLayout.storedByteCountMax)
  }

  private func findRuns(
    of file: PinnedFile, from grain: UInt64, in records: CatalogSnapshot, _ state: inout State
  ) throws {
    let pin = Pin(number: number, attachment: UInt32(state.index))
    let last = state.opened!.last
    let found = try records.extents(
      of: file, pin, after: last?.start, endingAfter: grain, limit: Self.runCountAhead)
    // Together with the one before: they may not overlap.
    _ = try EncryptedFileReader.checked((last.map { [$0] } ?? []) + found, size: file.inode.size)
    state.opened!.extents = found
    state.opened!.last = found.last ?? last
    state.opened!.isWhole = found.count < Self.runCountAhead
  }
}

/// The key of one file, for several threads.
final class SharedFileKey: Sendable {
  let key: FileKey

  init(_ key: consuming FileKey) { self.key = key }
}

extension Messages {
  func outboxReader(_ number: UInt64, from position: UInt64) throws -> OutboxReader {
    try OutboxReader(store, store.withSnapshot { try $0.outboxEntry(number) }, from: position)
  }
}
