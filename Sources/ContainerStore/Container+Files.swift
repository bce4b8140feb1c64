import EncryptedFile
import SodiumPrimitives

/// What is known of a file without opening it. Name, size and date of what a folder holds (`store` is the ``Container``):
///
/// ```swift
/// import ContainerStore
/// import Foundation
///
/// let store = container.store
/// for file in try store.list("/Documents") {
///   let date = Date(timeIntervalSince1970: Double(file.attributes.modified) / 1e9)
///   print(file.path, file.attributes.size, date.formatted(.iso8601))
/// }
/// ```
public struct FileAttributes: Sendable, Equatable {
  public var id: UInt64
  public var kind: FileKind
  /// Bytes of contents; 0 for directories.
  public var size: UInt64
  /// Nanoseconds since 1970-01-01 UTC, like the other dates.
  public var created: Int64
  public var modified: Int64
  public var changed: Int64
  /// POSIX bits.
  public var permissions: UInt16
  public var linkCount: Int

  init(_ found: FoundFile) {
    id = found.id
    kind = found.inode.kind
    size = found.inode.size
    created = found.inode.created
    modified = found.inode.modified
    changed = found.inode.changed
    permissions = found.inode.permissions
    linkCount = Int(found.inode.linkCount)
  }
}

/// One file of a listing.
public struct ListedFile: Sendable {
  /// Names below the listed directory, joined with slashes.
  public var path: String
  public var attributes: FileAttributes
}

extension Container {
  // MARK: Looking

  /// Nil when there is nothing at the path. Of a symbolic link at its end, those of the link itself unless `followingLinks`.
  public func attributes(at path: String, followingLinks: Bool = false) throws -> FileAttributes? {
    let path = try StorePath(path)
    return try withSnapshot { records in
      do {
        let place = try path.resolved(in: records, followingLast: followingLinks)
        return try records.find(place).map(FileAttributes.init)
      } catch ContainerError.noSuchFile {
        return nil
      } catch ContainerError.notADirectory {
        return nil
      }
    }
  }

  /// The directory's contents in bytewise order of names; with `recursively`, everything below, parents first.
  public func list(_ path: String, recursively: Bool = false) throws -> [ListedFile] {
    let path = try StorePath(path)
    return try withSnapshot { records in
      let directory = try records.existingDirectory(path)
      if recursively {
        return try records.subtree(directory.id).map { names, file in
          ListedFile(
            path: names.map(\.description).joined(separator: "/"), attributes: FileAttributes(file))
        }
      }
      let entries = try records.entries(directory.id)
      let inodes = try records.inodes(entries.map(\.entry.file))
      return zip(entries, inodes).map { entry, inode in
        ListedFile(
          path: entry.name.description,
          attributes: FileAttributes(FoundFile(id: entry.entry.file, inode: inode)))
      }
    }
  }

  /// The names in a directory, in bytewise order: what a listing is without looking at the files.
  public func names(in path: String) throws -> [String] {
    let path = try StorePath(path)
    return try withSnapshot { records in
      var names: [String] = []
      try records.scan(.entries(parent: records.existingDirectory(path).id)) { key, _ in
        names.append(String(decoding: key.bytes.dropFirst(9), as: UTF8.self))
      }
      return names
    }
  }

  // MARK: Contents

  /// The whole file. Throws `noSuchFile`, `isADirectory`, `fileDamaged`.
  public func contents(at path: String) throws -> [UInt8] {
    var contents: [UInt8] = []
    try withReader(path) { reader in
      let size = Int(reader.size)
      // Asking costs more than reading a small file.
      guard size <= 16 << 20 || size <= physicalMemoryByteCount() else {
        throw ContainerError(
          .invalidArgument, path: path,
          detail: "the file has \(size) bytes, more than there is memory: read it in pieces")
      }
      contents = try [UInt8](unsafeUninitializedCapacity: size) { buffer, initialized in
        let memory = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: size)
        while initialized < size {
          let rest = UnsafeMutableRawBufferPointer(rebasing: memory[initialized...])
          initialized += try reader.read(at: UInt64(initialized), into: rest)
        }
      }
    }
    return contents
  }

  /// The whole file into memory that `allocate` makes for its number of bytes. Throws as ``contents(at:)`` does.
  public func read(_ path: String, allocate: (Int) throws -> UnsafeMutableRawBufferPointer) throws {
    try withReader(path) { reader in
      let memory = try allocate(Int(reader.size))
      var done = 0
      while done < memory.count {
        done += try reader.read(
          at: UInt64(done), into: UnsafeMutableRawBufferPointer(rebasing: memory[done...]))
      }
    }
  }

  /// Reads the file piece by piece, 1 MiB at most at a time, in order. What `body` throws ends it.
  public func read(_ path: String, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
    try read(path, control: BulkControl(), begin: { _ in }, body)
  }

  /// Bytes from `offset` on; returns how many there were. When it throws, `buffer` is untouched.
  public func read(_ path: String, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws
    -> Int
  {
    var count = 0
    try withReader(path) { count = try $0.read(at: offset, into: buffer) }
    return count
  }

  func withReader(_ path: String, _ body: (inout EncryptedFileReader) throws -> Void) throws {
    let path = try StorePath(path)
    try withSnapshot { records in
      let found = try records.existingFile(path)
      try withContext { context in
        try namingPath(path.text) {
          var reader = try reader(of: found, in: records, context)
          try body(&reader)
        }
      }
    }
  }

  func reader(of file: FoundFile, in records: CatalogSnapshot, _ context: WorkerContext) throws
    -> EncryptedFileReader
  {
    try EncryptedFileReader(
      key: fileKey(file.id, file.inode), size: file.inode.size,
      extents: records.extents(file.id, file.inode), cipher: context.cipher,
      storedBytes: { [slabs] in try slabs.read($0, $1, into: $2) })
  }

  /// Creates a file, or replaces the one that is there, in one step. Directories on the way must exist. A symbolic link at the path's
  /// end is replaced itself unless `followingLinks`.
  public func write(
    _ contents: UnsafeRawBufferPointer, to path: String, permissions: UInt16 = 0o600,
    attributes: AttributeChanges = AttributeChanges(), followingLinks: Bool = true
  ) throws {
    try attributes.check(path)
    try writeSequentially(to: path, permissions: permissions, attributes, followingLinks: followingLinks) {
      try $0.append(contents)
    }
  }

  /// Creates or replaces a file from pieces that `next` delivers, in order, until it returns nil. Nothing is visible before the
  /// last piece; when anything throws, nothing is left.
  public func write(to path: String, permissions: UInt16 = 0o600, next: () throws -> [UInt8]?) throws {
    try writeSequentially(to: path, permissions: permissions) { writer in
      while let piece = try next() { try piece.withUnsafeBytes { try writer.append($0) } }
    }
  }

  private func writeSequentially(
    to text: String, permissions: UInt16, _ attributes: AttributeChanges = AttributeChanges(),
    followingLinks: Bool = true, _ fill: (inout EncryptedFileWriter) throws -> Void
  ) throws {
    let path = try StorePath(text)
    guard mode == .readWrite else { throw ContainerError(.readOnly, path: text) }
    _ = try withSnapshot { records in try place(for: path, in: records, followingLinks: followingLinks) }
    let file = takeFileIDs(1)
    let secret = Random.bytes(Inode.secretByteCount)
    try namingPath(text) {
      let (size, stored) = try withContext { context in
        var writer = try EncryptedFileWriter(
          key: keys.fileKey(file, epoch: epoch, secret: secret), cipher: context.cipher,
          takeNumbers: session.take, store: { [slabs] in try slabs.append($0) })
        do {
          try fill(&writer)
          try writer.finish()
        } catch {
          slabs.discard(writer.extents)
          throw error
        }
        return (writer.size, writer.extents)
      }
      try transaction(storing: stored) { transaction in
        let (parent, name) = try place(for: path, in: transaction, followingLinks: followingLinks)
        var inode = Inode(
          kind: .file, permissions: permissions, now: transaction.now, epoch: epoch, secret: secret)
        inode.size = size
        transaction.putFile(file, inode, extents: stored)
        try transaction.replace(parent, name, with: file, kind: .file)
        try transaction.apply(attributes, to: file)
      }
    }
  }

  /// Where a file that is to be written goes, after checking that it can.
  private func place(
    for path: StorePath, in catalog: some CatalogReading, followingLinks: Bool
  ) throws -> (directory: UInt64, name: FileName) {
    let path = try path.resolved(in: catalog, followingLast: followingLinks)
    guard !path.names.isEmpty, !path.namesDirectory else {
      throw ContainerError(.isADirectory, path: path.text)
    }
    let (directory, name) = try catalog.parent(of: path)
    if try catalog.entry(directory, name)?.kind == .directory {
      throw ContainerError(.isADirectory, path: path.text)
    }
    return (directory, name)
  }

  // MARK: Changing

  /// Makes a directory. Without intermediates, throws `fileExists` when something is there and `noSuchFile` when the parent
  /// is missing; with them, an existing directory is fine, and those that are made on the way get the attributes, too.
  public func createDirectory(
    _ text: String, withIntermediateDirectories: Bool = false, permissions: UInt16 = 0o700,
    attributes: AttributeChanges = AttributeChanges()
  ) throws {
    let path = try StorePath(text)
    try attributes.check(text)
    try namingPath(text) {
      try transaction { transaction in
        // A link to a directory is one where that is enough.
        var place = try path.resolved(in: transaction, followingLast: withIntermediateDirectories)
        place.namesDirectory = false
        let existing: FoundFile?
        do { existing = try transaction.find(place) } catch ContainerError.noSuchFile { existing = nil }
        if let found = existing {
          if withIntermediateDirectories, found.inode.kind == .directory { return }
          throw ContainerError(.fileExists, path: text)
        }
        guard let name = place.names.last else { throw ContainerError(.fileExists, path: text) }
        let parent =
          withIntermediateDirectories
          ? try transaction.directory(place.names.dropLast(), path: text, attributes: attributes)
          : try transaction.parent(of: place).directory
        let directory = transaction.takeFileID()
        try transaction.makeDirectory(parent, name, id: directory, permissions: permissions)
        try transaction.apply(attributes, to: directory)
      }
    }
  }

  /// Removes a file, a symbolic link, or a directory with everything in it. Throws `invalidArgument` for a path that ends with `.` or
  /// `..`, `notADirectory` for one of a file or link with a slash behind it.
  public func remove(_ text: String, recursively: Bool = true) throws {
    let path = try StorePath(text)
    try namingPath(text) {
      try transaction { transaction in
        let place = try path.placeToLeave(in: transaction)
        let (parent, name) = try transaction.parent(of: place)
        let found = try transaction.existing(place)
        if found.inode.kind == .directory {
          let below = try transaction.subtree(found.id)
          guard below.isEmpty || recursively else { throw ContainerError(.directoryNotEmpty, path: text) }
          try transaction.dropSubtree(found.id, below)
        } else {
          try transaction.dropFile(found.id)
        }
        try transaction.unlink(parent, name)
      }
    }
  }

  /// Moves or renames. Throws `fileExists` when something is at the destination, unless `replacing` and both are files; for the source's
  /// path the same as ``remove(_:recursively:)``. As with rename(2), the directories on both ways come before the source, and that before
  /// the destination.
  public func move(_ source: String, to destination: String, replacing: Bool = false) throws {
    let from = try StorePath(source)
    try namingPath(source) {
      try transaction { transaction in
        let from = try from.placeToLeave(in: transaction)
        let (oldParent, oldName) = try transaction.parent(of: from)
        let to: ResolvedPath
        do {
          to = try StorePath(destination).resolved(in: transaction, followingLast: false)
        } catch ContainerError.invalidName {
          _ = try transaction.existing(from)
          throw ContainerError(.invalidName, path: destination)
        }
        let place = to.names.isEmpty ? nil : try transaction.parent(of: to)
        let found = try transaction.existing(from)
        guard let (newParent, newName) = place else { throw ContainerError(.invalidArgument, path: to.text) }
        if found.inode.kind != .directory, to.namesDirectory {
          throw ContainerError(.notADirectory, path: destination)
        }
        if found.inode.kind == .directory, to.names.starts(with: from.names), from.names != to.names {
          throw ContainerError(.moveIntoItself, path: destination)
        }
        if oldParent == newParent, oldName == newName { return }
        if let existing = try transaction.entry(newParent, newName) {
          guard replacing, existing.kind != .directory, found.inode.kind != .directory else {
            throw ContainerError(.fileExists, path: destination)
          }
          // Of two names of one file, one is left.
          try transaction.dropFile(existing.file)
        }
        try transaction.unlink(oldParent, oldName)
        try transaction.link(newParent, newName, to: found.id, kind: found.inode.kind)
      }
    }
  }

  /// Sets dates or permissions; nil leaves them. Follows a symbolic link.
  public func setAttributes(
    at text: String, created: Int64? = nil, modified: Int64? = nil, permissions: UInt16? = nil
  ) throws {
    let path = try StorePath(text)
    try namingPath(text) {
      // Else what was written before would set the date after this.
      try writeBack()
      try transaction { transaction in
        var found = try transaction.existing(path)
        if let created { found.inode.created = created }
        if let modified { found.inode.modified = modified }
        if let permissions { found.inode.permissions = permissions & 0o7777 }
        found.inode.changed = transaction.now
        transaction.put(found.id, found.inode)
      }
    }
  }

  // MARK: Errors

  /// Runs `body` and gives what it throws the path, and damage of contents the code `fileDamaged`.
  func namingPath<R>(_ path: String, _ body: () throws -> R) throws -> R {
    do { return try body() } catch { throw translated(error, path: path) }
  }

  /// A file's extents, when they are possible together.
  func checkedExtents(of file: FoundFile, at path: String, in catalog: some CatalogReading) throws -> [Extent]
  {
    try namingPath(path) {
      try EncryptedFileReader.checked(catalog.extents(file.id, file.inode), size: file.inode.size)
    }
  }

  func translated(_ error: any Error, path: String) -> any Error {
    switch error {
    case let error as ContainerError: error.with(path: path)
    // Closed meanwhile: what was read or written after that counts for nothing.
    case _ where isClosed: ContainerError(.closed, path: path)
    case let failure as IOFailure: ContainerError.from(failure).with(path: path)
    case let damage as SegmentError:
      ContainerError(.fileDamaged, path: path, detail: damage.description, cause: damage)
    default: error
    }
  }
}

extension Transaction {
  /// Gives a name to a new file; a file that had it goes.
  func replace(_ parent: UInt64, _ name: FileName, with file: UInt64, kind: FileKind) throws {
    if let existing = try entry(parent, name) { try dropFile(existing.file) }
    try link(parent, name, to: file, kind: kind)
  }

  func dropSubtree(_ directory: UInt64, _ below: [(names: [FileName], file: FoundFile)]) throws {
    // In the order in which they stand in the tables.
    for (_, file) in below.sorted(by: { $0.file.id < $1.file.id }) {
      if file.inode.kind == .directory {
        for (key, _) in try records(.entries(parent: file.id)) { delete(key) }
        try dropDirectory(file.id)
      } else {
        try dropFile(file.id)
      }
    }
    for (key, _) in try records(.entries(parent: directory)) { delete(key) }
    try dropDirectory(directory)
  }
}
