import EncryptedFile
import Locks
import SodiumPrimitives

/// Reads the concatenated contents of a message's files, in the versions of the time when the
/// message was queued. Any thread may call; calls are serialized.
package final class OutboxReader: Sendable {
  /// Bytes of all files together.
  package let byteCount: UInt64
  private let store: Store
  private let number: UInt64
  private let fileCount: UInt64
  private let state = Guarded(State())

  private struct State {
    /// Index of the first file in `files`.
    var index: UInt64 = 0
    /// The next files, as far as they were read from the catalog.
    var files: [PinnedFile] = []
    /// Offset in the first of `files`.
    var position: UInt64 = 0
    /// The key of the file that was read last.
    var opened: OpenedPin?
  }

  /// The number of files that are read from the catalog at once.
  private static let fileCountAhead = 256
  private static let grain = UInt64(SegmentLayout.plaintextByteCountMax)

  fileprivate init(_ store: Store, _ entry: OutboxEntry, skipping offset: UInt64) throws {
    self.store = store
    number = entry.number
    fileCount = entry.fileCount
    byteCount = entry.byteCount
    guard offset <= byteCount else {
      throw ContainerError(
        .invalidArgument, detail: "the message has \(byteCount) bytes, asked for \(offset)")
    }
    try store.withSnapshot { records in
      try state.withLock { state in
        state.position = offset
        while try next(in: records, &state), let file = state.files.first, file.inode.size <= state.position {
          Self.pass(file, &state)
        }
      }
    }
  }

  /// Index of the file that contains the next byte, skipping empty files; the number of files at
  /// the end.
  package var fileIndex: UInt64 { state.withLock { $0.index } }

  /// The index of that file and the number of its bytes that were read.
  package var place: (fileIndex: UInt64, byteCount: UInt64) { state.withLock { ($0.index, $0.position) } }

  /// Reads the next plaintext bytes, at most 1 MiB per call, and returns their number; 0 at the
  /// end. Throws `fileDamaged` with the path of the original, and `noSuchFile` if the message has
  /// left the outbox.
  package func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    let byteCountMax = min(buffer.count, SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax)
    return try state.withLock { state in
      // The snapshot keeps the runs that the pins name from being freed.
      try store.withSnapshot { records in
        _ = try records.outboxEntry(number)
        var done = 0
        while done < byteCountMax, try next(in: records, &state), let file = state.files.first {
          guard
            let count = Self.pieceByteCount(of: file, at: state.position, room: byteCountMax - done)
              ?? (done == 0 ? Int(min(UInt64(byteCountMax), file.inode.size - state.position)) : nil)
          else { break }
          let target = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<(done + count)])
          do {
            try read(file, into: target, in: records, &state)
          } catch {
            // Return the bytes read before the damage; the next call meets it again.
            if done > 0 { break }
            throw store.translated(error, path: file.pathText)
          }
          done += count
          state.position += UInt64(count)
          if state.position == file.inode.size { Self.pass(file, &state) }
        }
        // Skip empty files, so that `fileIndex` is that of the next byte.
        while try next(in: records, &state), let file = state.files.first, file.inode.size == 0 {
          Self.pass(file, &state)
        }
        return done
      }
    }
  }

  /// The number of bytes to read of a file at once: whole segments, or the rest of one; nil if the
  /// room is too small for that.
  private static func pieceByteCount(of file: PinnedFile, at position: UInt64, room: Int) -> Int? {
    let left = file.inode.size - position
    let wanted =
      position % grain > 0
      ? min(left, grain - position % grain) : left <= UInt64(room) ? left : UInt64(room) / grain * grain
    return wanted > UInt64(room) || (wanted == 0 && left > 0) ? nil : Int(wanted)
  }

  private static func pass(_ file: PinnedFile, _ state: inout State) {
    state.position -= file.inode.size
    state.index += 1
    state.files.removeFirst()
  }

  /// Reads further files from the catalog if none are left; returns false at the end.
  private func next(in records: CatalogSnapshot, _ state: inout State) throws -> Bool {
    guard state.files.isEmpty else { return true }
    state.files = try records.pinnedFiles(number, from: state.index, limit: Self.fileCountAhead)
    return !state.files.isEmpty
  }

  private func read(
    _ file: PinnedFile, into target: UnsafeMutableRawBufferPointer, in records: CatalogSnapshot,
    _ state: inout State
  ) throws {
    guard !target.isEmpty else { return }
    if state.opened?.index != state.index {
      state.opened = OpenedPin(index: state.index, key: try store.fileKey(file.file, file.inode))
    }
    let opened = state.opened!
    let first = state.position / Self.grain
    let last = (state.position + UInt64(target.count) - 1) / Self.grain
    let pin = Pin(number: number, attachment: UInt32(state.index))
    let extents = ExtentMap(
      checked: try EncryptedFileReader.checked(
        records.extents(of: file, pin, near: first..<(last + 1)), size: file.inode.size)
    ).slices(first..<(last + 1))
    try store.workers.withContext { context in
      let skip = Int(state.position - first * Self.grain)
      // A piece that is not made of whole segments is opened in the context's buffer.
      let isDirect =
        skip == 0
        && extents.allSatisfy { Int(($0.start - first) * Self.grain) + $0.plaintextByteCount <= target.count }
      let memory = UnsafeMutableRawBufferPointer(
        rebasing: (isDirect ? target : context.output)[
          0..<(isDirect ? target.count : Int((last + 1 - first) * Self.grain))])
      var filled = 0
      func fill(to end: Int) {
        guard filled < end else { return }
        _ = UnsafeMutableRawBufferPointer(rebasing: memory[filled..<end])
          .initializeMemory(as: UInt8.self, repeating: 0)
      }
      for extent in extents {
        let begin = Int((extent.start - first) * Self.grain)
        fill(to: begin)
        filled = begin + extent.plaintextByteCount
        let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<extent.storedByteCount])
        let count = try store.slabs.read(extent.slab, extent.offset, into: stored)
        var output = OutputRawSpan(buffer: memory[begin..<filled], initializedCount: 0)
        try context.cipher.open(
          stored.bytes.extracting(first: count), of: extent.run, key: opened.key, into: &output)
      }
      fill(to: memory.count)
      guard !isDirect else { return }
      target.copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[skip..<(skip + target.count)]))
      wipe(memory)
    }
  }
}

/// The key of one file.
private final class OpenedPin {
  let index: UInt64
  let key: FileKey

  init(index: UInt64, key: consuming FileKey) {
    self.index = index
    self.key = key
  }
}

extension Messages {
  func outboxReader(_ number: UInt64, from offset: UInt64) throws -> OutboxReader {
    try OutboxReader(store, store.withSnapshot { try $0.outboxEntry(number) }, skipping: offset)
  }
}
