import EncryptedFile
import SodiumPrimitives

/// A file of a container that stays open for reading and writing at any place.
///
/// Every handle of the container on the same file sees at once what the others wrote, and so does every call that takes a path.
/// What was written stands in memory until the container's write cache is full, a second has passed, the file or the container is
/// synchronized or closed, or somebody looks at the container by path: a crash takes what was written since, as a whole up to some
/// such moment. A file that is removed, or replaced, goes on existing for the handles that it has.
///
/// Any thread may call.
public final class OpenFile: Sendable {
  public enum Access: Sendable {
    case read, write, readWrite
  }

  /// As it was given when the file was opened.
  public let path: String
  public let access: Access
  private let container: Container
  private let node: FileNode
  private let state = Guarded(State())

  private struct State {
    var isClosed = false
    /// Nil while a read uses it.
    var cursor: ReadCursor? = ReadCursor()
  }

  private static let pieceByteCount = UInt64(UnitAhead.byteCount)

  init(_ container: Container, _ node: FileNode, path: String, access: Access) {
    self.container = container
    self.node = node
    self.path = path
    self.access = access
  }

  deinit { try? close() }

  private func requireOpen() throws {
    if state.withLock({ $0.isClosed }) {
      throw ContainerError(ofHandle: .closed, path: path)
    }
    if container.isClosed { throw ContainerError(.closed, path: path) }
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

  /// What is known of the file, as the handles see it. A removed file has no links. Throws `closed`.
  public func attributes() throws -> FileAttributes {
    try requireOpen()
    return try container.namingPath(path) {
      let stored = node.state.withLock { $0.removed == nil ? nil : $0.inode }
      var inode = try stored ?? container.withStoredCatalog { try $0.inode(node.id) }
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

  /// Fills `buffer` from `offset` on; returns how many bytes there were, 0 at the end of the file.
  ///
  /// Who reads in order gets what was opened ahead on other threads, and a large buffer is filled by several. When a part cannot be
  /// read, the call returns the bytes before it, or throws when there are none; what stands in `buffer` behind them means nothing.
  /// Throws `fileDamaged`, `closed`, and `invalidArgument` when the file was opened for writing only.
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
            ?? node.read(at: position, into: piece, of: container, keeping: &cursor.opened)
          done += count
          if count < piece.count { break }
        } catch {
          if done > 0 { break }
          throw container.translated(error, path: path)
        }
      }
    }
    cursor.end(at: offset + UInt64(done), of: node, in: container)
    return done
  }

  /// Units of the file are opened on the worker threads, straight into the caller's memory.
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
    let (node, container, all) = (node, container, parts)
    try container.workers.forEach(parts.count) { _, i in
      let part = all[i]
      let piece = UnsafeMutableRawBufferPointer(
        rebasing: target.bytes[Int(part.lowerBound - offset)..<Int(part.upperBound - offset)])
      var opened = OpenedSegment()
      defer { opened.wipeBytes() }
      let count = Result {
        try node.read(at: part.lowerBound, into: piece, of: container, keeping: &opened, isScratch: true)
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
        throw container.translated(error, path: path)
      }
    }
    return done
  }

  private func giveBack(_ cursor: inout ReadCursor) {
    var mine = ReadCursor()
    swap(&mine, &cursor)
    let isKept = state.withLock { state in
      guard !state.isClosed, state.cursor == nil else { return false }
      swap(&mine, &cursor)
      state.cursor = cursor
      return true
    }
    if !isKept { mine.clear() }
  }

  // MARK: Writing

  /// Writes at an offset; what lies between the end of the file and it reads as zeros. Up to 1 MiB at once for those who read.
  /// Throws `diskFull` and other failures of the store when the write cache had to be emptied: what stood in it stays there, and
  /// what was written before the failure, too. Throws `readOnly` and `closed`.
  public func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws {
    try requireWritable()
    try container.namingPath(path) { try put(bytes, at: offset) }
  }

  /// Writes at what is the end of the file at that moment, and returns where that was. Appends through all handles go one after
  /// another. Throws as ``write(_:at:)`` does.
  @discardableResult
  public func append(_ bytes: UnsafeRawBufferPointer) throws -> UInt64 {
    try requireWritable()
    return try container.namingPath(path) {
      // A short one, too: else it could come where the next piece of a long one is about to go.
      try node.appending.withLock { _ in
        guard bytes.count <= Int(Self.pieceByteCount) else {
          let offset = node.size
          try put(bytes, at: offset)
          return offset
        }
        try container.makeRoom(for: bytes.count, of: node)
        let offset = try node.write(bytes, at: nil)
        container.openFiles.noteChange(in: container)
        return offset
      }
    }
  }

  private func put(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws {
    var done = 0
    repeat {
      let count = min(bytes.count - done, Int(Self.pieceByteCount))
      try container.makeRoom(for: count, of: node)
      try node.write(
        UnsafeRawBufferPointer(rebasing: bytes[done..<(done + count)]), at: offset + UInt64(done))
      done += count
    } while done < bytes.count
    if done > 0 { container.openFiles.noteChange(in: container) }
  }

  /// Cuts the file, or makes it longer with zeros. Throws `readOnly`, `closed`, `invalidArgument`.
  public func truncate(to size: UInt64) throws {
    try requireWritable()
    try container.namingPath(path) { try node.truncate(to: size) }
    container.openFiles.noteChange(in: container)
  }

  /// Makes everything durable that was written to the container so far, by whomever (except with ``Container/Durability/none``).
  /// Throws what could not be written; that stays in the cache.
  public func synchronize() throws {
    try requireOpen()
    guard container.mode == .readWrite else { return }
    try container.namingPath(path) {
      if let failure = try container.writeBack()[node.id] { throw failure }
      try container.synchronizeCatalog()
    }
  }

  /// Commits what was written, as durably as the container does, and gives the handle up: every later call throws `closed`. When
  /// it throws, what could not be written is lost, unless other handles of the file are open. Closing twice is fine.
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
      // Nobody will read what is left of a removed file.
      if failure == nil, !node.isRemoved {
        do {
          failure = try container.writeBack(durability: container.options.durability)[node.id]
        } catch {
          failure = error
        }
      }
      switch container.openFiles.release(node, dropping: failure != nil) {
      case .changed: continue
      case .shared: break
      case .last: container.dispose(node)
      }
      break
    }
    if let failure { throw container.translated(failure, path: path) }
  }
}

extension Container {
  /// Opens a file for reading and writing at any place; with `create`, makes it when there is nothing at the path, with
  /// `permissions`; with `truncate`, empties it. Throws `noSuchFile`, `isADirectory`, `readOnly`.
  public func openFile(
    _ path: String, _ access: OpenFile.Access, create: Bool = false, truncate: Bool = false,
    permissions: UInt16 = 0o600
  ) throws -> OpenFile {
    let place = try StorePath(path)
    if mode == .readOnly, access != .read || create || truncate {
      throw ContainerError(.readOnly, path: path)
    }
    if truncate, access == .read {
      throw ContainerError(.invalidArgument, path: path, detail: "a file opened for reading is not emptied")
    }
    let node = try namingPath(path) {
      mode == .readOnly
        ? try withStoredCatalog { try sharedNode(of: $0.existingFile(place)) }
        : try openedNode(place, create: create, permissions: permissions)
    }
    let file = OpenFile(self, node, path: path, access: access)
    if truncate { try file.truncate(to: 0) }
    return file
  }

  private func openedNode(_ place: StorePath, create: Bool, permissions: UInt16) throws -> FileNode {
    let exists = try withStoredCatalog { try $0.find(place.resolved(in: $0)) != nil }
    // In a transaction, so that the file cannot be removed before its node is known. Nothing has to be durable when it is there.
    let durability = exists && options.durability == .full ? Durability.grouped : options.durability
    return try transaction(durability: durability) { transaction in
      let place = try place.resolved(in: transaction)
      if let found = try transaction.find(place) {
        guard found.inode.kind == .file else {
          throw ContainerError(
            found.inode.kind == .directory ? .isADirectory : .cannotStore, path: place.text)
        }
        return try sharedNode(of: found)
      }
      guard create else { throw ContainerError(.noSuchFile, path: place.text) }
      guard !place.names.isEmpty, !place.namesDirectory else {
        throw ContainerError(.isADirectory, path: place.text)
      }
      let (directory, name) = try transaction.parent(of: place)
      let file = transaction.takeFileID()
      let inode = Inode(
        kind: .file, permissions: permissions & 0o7777, now: transaction.now, epoch: epoch,
        secret: Random.bytes(Inode.secretByteCount))
      transaction.put(file, inode)
      try transaction.link(directory, name, to: file, kind: .file)
      return try sharedNode(of: FoundFile(id: file, inode: inode))
    }
  }

  private func sharedNode(of found: FoundFile) throws -> FileNode {
    try openFiles.open(found.id) {
      FileNode(
        id: found.id, inode: found.inode, key: try fileKey(found.id, found.inode), tally: openFiles.tally)
    }
  }
}
