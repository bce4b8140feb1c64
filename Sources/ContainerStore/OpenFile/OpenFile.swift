import EncryptedFile
import Locks
import SodiumPrimitives

/// A file of a container that is open for reading and writing at any offset.
///
/// Bytes written through a handle are visible at once to all handles of the file and to every call
/// that takes a path. They stay in memory until the container's write cache is full, a second has
/// passed, the file or the container is synchronized or closed, or the container is read by path. A
/// crash loses all bytes written since one such moment, and none written before it. A removed or
/// replaced file continues to exist for its open handles.
///
/// Any thread may call.
public final class OpenFile: Sendable {
  public enum Access: Sendable {
    case read, write, readWrite
  }

  /// The path as given when the file was opened.
  public let path: String
  public let access: Access
  private let writeBack: WriteBack
  private var store: Store { writeBack.store }
  private let node: FileNode
  private let state = Guarded(State())

  private struct State {
    var isClosed = false
    /// Nil while a read uses the cursor.
    var cursor: ReadCursor? = ReadCursor()
  }

  private static let pieceByteCount = UInt64(UnitAhead.byteCount)

  init(_ writeBack: WriteBack, _ node: FileNode, path: String, access: Access) {
    self.writeBack = writeBack
    self.node = node
    self.path = path
    self.access = access
    writeBack.files.add(self)
  }

  deinit {
    try? close()
    writeBack.files.remove(self)
  }

  /// The container was closed: nothing that was opened stays in memory.
  func forget() {
    var cursor: ReadCursor?
    state.withLock { swap(&cursor, &$0.cursor) }
    cursor?.clear()
  }

  private func requireOpen() throws {
    if state.withLock({ $0.isClosed }) {
      throw ContainerError(ofHandle: .closed, path: path)
    }
    if store.isClosed { throw store.closed.with(path: path) }
  }

  private func requireWritable() throws {
    guard access != .read else {
      throw ContainerError(ofHandle: .readOnly, path: path)
    }
    try requireOpen()
  }

  // MARK: Reading

  /// Bytes of contents.
  public var size: UInt64 { node.size }

  /// The file's metadata as the handles see it. A removed file has no links. Throws `closed`.
  public func attributes() throws -> FileAttributes {
    try requireOpen()
    return try store.namingPath(path) {
      let stored = node.state.withLock { $0.removed == nil ? nil : $0.inode }
      var inode = try stored ?? store.withSnapshot { try $0.inode(node.id) }
      node.state.withLock { state in
        inode.size = state.size
        for layer in [state.frozen, state.dirty] {
          guard let layer, layer.isChanged else { continue }
          inode.modified = layer.modified
          inode.changed = max(inode.changed, layer.modified)
        }
      }
      return FileAttributes(FoundFile(id: node.id, inode: inode))
    }
  }

  /// Fills `buffer` from `offset` on and returns the number of bytes read; 0 at the end of the
  /// file.
  ///
  /// Sequential reads use segments that other threads opened in advance, and several threads fill a
  /// large buffer. When a part cannot be read, the call returns the bytes before it, or throws if
  /// there are none; the rest of `buffer` is undefined. Throws `fileDamaged`, `closed`, and
  /// `invalidArgument` if the file was opened for writing only.
  public func read(at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    try requireOpen()
    guard access != .write else {
      throw ContainerError(.invalidArgument, path: path, detail: "the file was opened for writing only")
    }
    var cursor = state.withLock { state in
      defer { state.cursor = nil }
      return state.cursor ?? ReadCursor()
    }
    defer { giveBack(&cursor) }
    cursor.begin(at: offset, count: buffer.count)
    var done = 0
    if buffer.count >= 2 * Int(Self.pieceByteCount) {
      done = try readInParallel(at: offset, into: buffer)
    } else {
      while done < buffer.count {
        let (position, overflows) = offset.addingReportingOverflow(UInt64(done))
        guard !overflows else { break }
        let wanted = min(UInt64(buffer.count - done), Self.pieceByteCount - position % Self.pieceByteCount)
        let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<(done + Int(wanted))])
        do {
          let count =
            try cursor.copy(from: position, into: piece)
            ?? node.read(at: position, into: piece, of: store, keeping: &cursor.opened)
          done += count
          if count < piece.count { break }
        } catch {
          if done > 0 { break }
          throw store.translated(error, path: path)
        }
      }
    }
    cursor.end(at: offset + UInt64(done), of: node, in: store)
    return done
  }

  /// Opens units of the file on the worker threads, directly into the caller's memory.
  private func readInParallel(at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    let size = node.size
    guard offset < size else { return 0 }
    let end = offset + min(size - offset, UInt64(buffer.count))
    var parts: [Range<UInt64>] = []
    while case let begin = parts.last?.upperBound ?? offset, begin < end {
      parts.append(begin..<min(end, (begin / Self.pieceByteCount + 1) * Self.pieceByteCount))
    }
    let counts = Guarded<[Result<Int, any Error>?]>(Array(repeating: nil, count: parts.count))
    let target = SharedTarget(bytes: buffer)
    let (node, store, all) = (node, store, parts)
    try store.workers.threads.forEach(parts.count) { _, i in
      let part = all[i]
      let piece = UnsafeMutableRawBufferPointer(
        rebasing: target.bytes[Int(part.lowerBound - offset)..<Int(part.upperBound - offset)])
      var opened = OpenedSegment()
      defer { opened.wipeBytes() }
      let count = Result {
        try node.read(at: part.lowerBound, into: piece, of: store, keeping: &opened, isScratch: true)
      }
      counts.withLock { $0[i] = count }
    }
    var done = 0
    for (part, count) in zip(parts, counts.withLock { $0 }) {
      do {
        let count = try count?.get() ?? 0
        done += count
        if count < part.upperBound - part.lowerBound { break }
      } catch {
        if done > 0 { break }
        throw store.translated(error, path: path)
      }
    }
    return done
  }

  private func giveBack(_ cursor: inout ReadCursor) {
    var mine = ReadCursor()
    swap(&mine, &cursor)
    let isKept = state.withLock { state in
      guard !state.isClosed, !store.isClosed, state.cursor == nil else { return false }
      swap(&mine, &cursor)
      state.cursor = cursor
      return true
    }
    if !isKept { mine.clear() }
  }

  // MARK: Writing

  /// Writes at an offset; a gap between the end of the file and `offset` reads as zeros. Each piece
  /// of up to 1 MiB becomes visible to readers in one step. Throws `diskFull` and other errors of
  /// the store if the write cache had to be emptied and could not be: the bytes in the cache stay
  /// there, and so do those that this call wrote before the failure. Throws `readOnly` and
  /// `closed`.
  public func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws {
    try requireWritable()
    try store.namingPath(path) { try put(bytes, at: offset) }
  }

  /// Writes at the current end of the file and returns that offset. Appends through all handles are
  /// serialized. Throws like ``write(_:at:)``.
  @discardableResult
  public func append(_ bytes: UnsafeRawBufferPointer) throws -> UInt64 {
    try requireWritable()
    return try store.namingPath(path) {
      // Short appends take the lock, too: else one could use the offset of a long one's next piece.
      try node.appending.withLock { _ in
        guard bytes.count <= Int(Self.pieceByteCount) else {
          let offset = node.size
          try put(bytes, at: offset)
          return offset
        }
        try writeBack.makeRoom(for: bytes.count, of: node)
        let offset = try node.write(bytes, at: nil)
        writeBack.files.noteChange(in: store)
        return offset
      }
    }
  }

  private func put(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws {
    var done = 0
    repeat {
      let count = min(bytes.count - done, Int(Self.pieceByteCount))
      try writeBack.makeRoom(for: count, of: node)
      try node.write(
        UnsafeRawBufferPointer(rebasing: bytes[done..<(done + count)]), at: offset + UInt64(done))
      done += count
    } while done < bytes.count
    if done > 0 { writeBack.files.noteChange(in: store) }
  }

  /// Truncates the file, or extends it with zeros. Throws `readOnly`, `closed`, `invalidArgument`.
  public func truncate(to size: UInt64) throws {
    try requireWritable()
    try store.namingPath(path) { try node.truncate(to: size) }
    writeBack.files.noteChange(in: store)
  }

  /// Makes durable all bytes written to the container so far, through any handle (except with
  /// ``ContainerDurability/none``). Throws the error of a failed write; its bytes stay in the
  /// cache.
  public func synchronize() throws {
    try requireOpen()
    guard store.mode == .readWrite else { return }
    try store.namingPath(path) {
      if let failure = try writeBack.run()[node.id] { throw failure }
      try store.flush(durably: true)
    }
  }

  /// Commits the written bytes with the container's durability and releases the handle: every later
  /// call throws `closed`. If it throws, bytes that could not be written are lost, unless other
  /// handles of the file are open. A second call does nothing.
  public func close() throws {
    var cursor: ReadCursor?
    let wasClosed = state.withLock { state in
      cursor = state.cursor
      state.cursor = nil
      defer { state.isClosed = true }
      return state.isClosed
    }
    guard !wasClosed else { return }
    cursor?.clear()
    var failure: (any Error)?
    while true {
      // A removed file is not stored: no handle is left to read it.
      if failure == nil, !node.isRemoved {
        do {
          failure = try writeBack.run(durability: store.options.durability)[node.id]
        } catch {
          failure = error
        }
      }
      switch writeBack.files.release(node, dropping: failure != nil) {
      case .changed: continue
      case .shared: break
      case .last: writeBack.dispose(node)
      }
      break
    }
    if let failure { throw store.translated(failure, path: path) }
  }
}
