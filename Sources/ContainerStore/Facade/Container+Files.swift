extension Container {
  private var files: FileTree { FileTree(store: store) }

  // MARK: Contents

  /// Creates a file, or replaces an existing one, in one step. The parent directories must exist. A
  /// symbolic link at the end of the path is itself replaced unless `followingLinks` is set.
  public func write(
    _ contents: UnsafeRawBufferPointer, to path: String, permissions: UInt16 = 0o600,
    attributes: AttributeChanges = AttributeChanges(), followingLinks: Bool = true
  ) throws {
    try attributes.check(path)
    let path = try writablePath(path)
    try files.write(
      to: path, permissions: permissions, attributes: attributes, followingLinks: followingLinks
    ) { try $0.append(contents.bytes) }
  }

  /// Creates or replaces a file from the pieces that `next` returns, in order, until it returns
  /// nil. Nothing is visible before the last piece; if any call throws, nothing of the new file is
  /// left.
  public func write(to path: String, permissions: UInt16 = 0o600, next: () throws -> [UInt8]?) throws {
    let path = try writablePath(path)
    try files.write(to: path, permissions: permissions) { writer in
      while let piece = try next() { try writer.append(piece.span.bytes) }
    }
  }

  /// Creates a file, or replaces an existing one, in one step. Throws the errors of the form
  /// without `control`, and `cancelled`; then nothing of the new file is left.
  public func write(
    _ contents: UnsafeRawBufferPointer, to path: String, permissions: UInt16 = 0o600, control: BulkControl
  ) throws {
    var report = PieceReport(control, byteCount: UInt64(contents.count))
    try report.advance(0)
    var done = 0
    try write(to: path, permissions: permissions) {
      try report.advance(done - Int(report.bytesDone))
      guard done < contents.count else { return nil }
      let piece = contents[done..<min(done + PieceReport.pieceByteCount, contents.count)]
      done += piece.count
      return [UInt8](piece)
    }
    report.end()
  }

  func writablePath(_ text: String) throws -> StorePath {
    let path = try StorePath(text)
    guard mode == .readWrite else { throw ContainerError(.readOnly, path: text) }
    // Bytes written to open files are committed before the file that may replace them.
    try writeBack.runIfPossible()
    return path
  }

  /// Opens a file for reading and writing at any offset. With `create`, a missing file is created
  /// with `permissions`; with `truncate`, the file is emptied. Throws `noSuchFile`, `isADirectory`,
  /// `readOnly`.
  public func openFile(
    _ path: String, _ access: OpenFile.Access, create: Bool = false, truncate: Bool = false,
    permissions: UInt16 = 0o600
  ) throws -> OpenFile {
    try writeBack.openFile(
      StorePath(path), access, create: create, truncate: truncate, permissions: permissions)
  }

  // MARK: Items

  /// Creates a directory. Without intermediate directories, throws `fileExists` if an item is at
  /// the path and `noSuchFile` if the parent is missing. With them, an existing directory is kept,
  /// and the new directories on the path receive the attributes, too.
  public func createDirectory(
    _ path: String, withIntermediateDirectories: Bool = false, permissions: UInt16 = 0o700,
    attributes: AttributeChanges = AttributeChanges()
  ) throws {
    try files.createDirectory(
      StorePath(path), withIntermediateDirectories: withIntermediateDirectories, permissions: permissions,
      attributes: attributes)
  }

  /// Removes a file, a symbolic link, or a directory with everything in it. Throws
  /// `invalidArgument` for a path that ends with `.` or `..`, and `notADirectory` for the path of a
  /// file or link with a slash at the end.
  public func remove(_ path: String, recursively: Bool = true) throws {
    try files.remove(StorePath(path), recursively: recursively)
  }

  /// Moves or renames an item. Throws `fileExists` if an item is at the destination, unless
  /// `replacing` is set and both are files; for the source's path, throws the errors of
  /// ``remove(_:recursively:)``. Errors have the order of rename(2): first those of both parent
  /// directories, then those of the source, then those of the destination.
  public func move(_ source: String, to destination: String, replacing: Bool = false) throws {
    try files.move(StorePath(source), to: destination, replacing: replacing)
  }

  /// Moves an item into a directory in one commit and returns the new path. A missing directory is
  /// created. The item keeps its name, or receives a number after it if the name is taken; existing
  /// items of the directory stay. Throws `noSuchFile`, `moveIntoItself`.
  public func move(_ source: String, into directory: String) throws -> String {
    try files.move(StorePath(source), into: StorePath(directory))
  }

  /// Replaces one item with another in one commit. `backup` is a free name in the same directory
  /// that the old item receives. With `keepsMetadata` the new item receives the old one's
  /// permissions and date of creation. Throws `noSuchFile` if either item is missing,
  /// `moveIntoItself` if one is inside the other, and `fileExists` if the backup's name is taken;
  /// for paths that do not end with a name, throws the errors of ``remove(_:recursively:)``.
  public func replaceItem(
    at path: String, with newItem: String, backup: String? = nil, keepsMetadata: Bool = true
  ) throws {
    let source = try StorePath(newItem)
    try storingChanges(path) {
      try files.replaceItem(at: $0, with: source, backup: backup, keepsMetadata: keepsMetadata)
    }
  }

  // MARK: Links

  /// Creates a symbolic link. `target` is stored unchanged and need not exist. A relative target
  /// starts at the link's directory, an absolute one at the container's root. Throws `fileExists`,
  /// `noSuchFile`, and `invalidArgument` for a target of no bytes or more than 4096. With
  /// `replacing`, an existing file or link is removed in the same commit; for a directory, throws
  /// `isADirectory`.
  public func createSymbolicLink(_ path: String, to target: String, replacing: Bool = false) throws {
    try files.createSymbolicLink(StorePath(path), to: target, replacing: replacing)
  }

  /// Gives a file another name. All names share the file's contents and attributes, which are
  /// removed with the last name. A symbolic link itself receives the other name. Throws
  /// `fileExists`, and `isADirectory` for a directory. With `replacing`, another file or link at
  /// the path is removed in the same commit.
  public func createLink(_ path: String, to existing: String, replacing: Bool = false) throws {
    try files.createLink(StorePath(path), to: StorePath(existing), replacing: replacing)
  }

  /// Gives a file, or every file below a directory, another name, in one commit. Directories and
  /// symbolic links are created anew with permissions and extended attributes; missing parent
  /// directories are created. Throws `fileExists`, `noSuchFile`, `moveIntoItself`.
  public func linkTree(_ path: String, to existing: String) throws {
    try files.linkTree(StorePath(path), to: StorePath(existing))
  }

  // MARK: Attributes

  /// Sets dates or permissions; nil leaves a value unchanged, and without any nothing happens.
  /// Follows a symbolic link.
  public func setAttributes(
    at path: String, created: Int64? = nil, modified: Int64? = nil, permissions: UInt16? = nil
  ) throws {
    try setAttributes(
      AttributeChanges(created: created, modified: modified, permissions: permissions), at: path)
  }

  /// Sets attributes of every kind in one commit. Follows symbolic links. Throws `noSuchFile`,
  /// `invalidName`, `invalidArgument`.
  public func setAttributes(_ changes: AttributeChanges, at path: String) throws {
    try changes.check(path)
    try storingChanges(path) { try files.setAttributes(changes, at: $0) }
  }

  /// Adds extended attributes to the existing ones in one commit; a nil value removes the
  /// attribute. Throws `invalidName` for a name that does not have 1 to 255 bytes or that differs
  /// from an existing one only in how its characters are composed, and `invalidArgument` for a
  /// value of more than 32,768 bytes.
  public func setExtendedAttributes(
    _ changes: [String: [UInt8]?], at path: String, followingLinks: Bool = true
  ) throws {
    try files.setExtendedAttributes(changes, at: StorePath(path), followingLinks: followingLinks)
  }

  /// Stores bytes written through open files before `body` runs. A later write-back would overwrite
  /// the dates that `body` sets.
  private func storingChanges(_ text: String, _ body: (StorePath) throws -> Void) throws {
    let path = try StorePath(text)
    try store.namingPath(text) {
      try writeBack.run()
      try body(path)
    }
  }

  // MARK: Bulk

  /// Copies a native file, or a folder with everything in it, to `destination` in one commit.
  /// Existing files at the destination are replaced, directories are merged, and missing parent
  /// directories are created.
  ///
  /// A symbolic link at `native` itself is followed; a link below it is stored as a link. Throws
  /// `noSuchFile`, `cannotStore` for pipes and devices, for names that are not UTF-8 and for the
  /// container's own directory, and `fileExists` or `isADirectory` where one side has a directory and the
  /// other a file. With `control.skipping`, what cannot be read or stored below a folder is left out.
  /// A file that somebody writes to is stored as it was when its end was reached.
  @discardableResult
  public func importItem(
    at native: String, to destination: String, control: BulkControl = BulkControl()
  ) throws -> BulkReceipt {
    let path = try StorePath(destination)
    guard mode == .readWrite else { throw ContainerError(.readOnly, path: destination) }
    try store.requireOpen()
    let tree = try NativeTree(native, excluding: store.io.directory?.identity, skipping: control.skipping)
    try writeBack.runIfPossible()
    return try Import(store: store, control: control).run(tree, to: path)
  }

  /// Copies a file, or a directory with everything in it, inside the container in one commit. The
  /// copies have keys of their own. Throws `fileExists` if an item is at the destination, unless
  /// `replacing` is set and both are files; with `replacing`, a symbolic link at the destination is
  /// followed. The destination's parent directory must exist, unless `makingParents` is set and a
  /// directory is copied.
  public func copy(
    _ source: String, to destination: String, replacing: Bool = false, makingParents: Bool = false,
    control: BulkControl = BulkControl()
  ) throws {
    try copy(
      source, into: self, to: destination, replacing: replacing, makingParents: makingParents,
      control: control)
  }
}
