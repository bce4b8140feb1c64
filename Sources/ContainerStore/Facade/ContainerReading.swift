import EncryptedFile
public import SodiumPrimitives

/// A source of files: a ``Container`` or a ``ContainerSnapshot``.
///
/// Any thread may call. Calls block while they read, write or compute; in an async context, use the
/// async variants of SecureFiles. Before a container is read, bytes written through open files are
/// stored, so that paths and handles show the same contents.
public protocol ContainerReading: Sendable {
  var reader: ContainerReader { get }
}

extension ContainerReading {
  var store: Store { reader.store }

  public var id: Identifier { store.id }
  public var mode: ContainerMode { store.mode }
  /// Creation time of the container in nanoseconds since 1970-01-01 UTC.
  public var created: Int64 { store.created }
  /// Problems that were found, and corrected or worked around, since the opening. Damage that has
  /// no effect because a second copy exists remains until
  /// ``Container/repair(at:credential:options:acceptsLoss:)`` repairs it.
  public var findings: [Finding] { store.log.findings }
  /// The number of the last commit in the journal.
  public var commit: UInt64 { store.lastCommit }

  // MARK: Lookup

  /// The attributes of the item at a path; nil if there is none. A symbolic link at the end of the
  /// path is followed only if `followingLinks` is set. A directory whose own record is lost is there all the same: its dates are
  /// of 1970 then, and its permissions 0700.
  public func attributes(at path: String, followingLinks: Bool = false) throws -> FileAttributes? {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot { try $0.attributes(at: path, followingLinks: followingLinks) }
  }

  /// The contents of a directory in bytewise order of names; with `recursively`, everything below
  /// it, parents first.
  public func list(_ path: String, recursively: Bool = false) throws -> [ListedFile] {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot { try $0.list(path, recursively: recursively) }
  }

  /// The names in a directory, in bytewise order. Reads no attributes.
  public func names(in path: String) throws -> [String] {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot { try $0.names(in: path) }
  }

  /// A listing of a directory, or with `recursively` of everything below it, in the state of this
  /// call. With `skipsHidden`, items whose names begin with a dot are left out with everything in
  /// them. Throws `noSuchFile`, `notADirectory`.
  public func listing(
    of path: String, recursively: Bool = false, skipsHidden: Bool = false
  ) throws -> Listing {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot(naming: path) { records in
      Listing(
        store, path.text, try records.existingDirectory(path), in: records, recursively: recursively,
        skipsHidden: skipsHidden)
    }
  }

  /// Everything readable in a directory and, with `recursively`, below it, parents first. `skipping`
  /// receives an error for each file that is left out because of damage in the catalog, and for each
  /// directory of which some names are left out, or whose own dates and permissions are lost: those
  /// are then of 1970 and 0700.
  public func readableTree(
    at path: String, recursively: Bool = true, skipping: (ContainerError) -> Void
  ) throws -> [ListedFile] {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot {
      try $0.readableTree(at: path, recursively: recursively, skipping: skipping)
    }
  }

  /// The target of a symbolic link, as stored. Throws `notASymbolicLink`.
  public func destinationOfSymbolicLink(_ path: String) throws -> String {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot(naming: path) { try $0.destinationOfSymbolicLink(path) }
  }

  /// The path without links, `.` and `..`; names at its end that do not exist are kept.
  public func resolvedPath(_ path: String, followingLinks: Bool = true) throws -> String {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot(naming: path) {
      StorePath.text(try path.resolved(in: $0, followingLast: followingLinks).names)
    }
  }

  /// Throws `invalidArgument` for a native path in the container's own directory.
  package func requireOutside(_ nativePath: String) throws {
    try store.io.directory?.identity?.requireOutside(nativePath)
  }

  /// Names and values of a file's extended attributes.
  public func extendedAttributes(at path: String, followingLinks: Bool = false) throws -> [String: [UInt8]] {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot(naming: path) {
      try $0.extendedAttributes(at: path, followingLinks: followingLinks)
    }
  }

  /// Whether two items have the same kind and contents: the bytes of files, the targets of links,
  /// the names and items of directories. Both are compared in one snapshot, with constant memory
  /// except for the names. A file whose permissions deny reading to its owner equals only itself.
  /// Throws `noSuchFile`, `fileDamaged`.
  public func contentsEqual(_ path: String, _ other: String) throws -> Bool {
    let (first, second) = (try StorePath(path), try StorePath(other))
    return try reader.withWrittenBackSnapshot(naming: first) {
      try FileReading(store: store).contentsEqual(first, second, in: $0)
    }
  }

  // MARK: Contents

  /// The contents of a whole file. Throws `noSuchFile`, `isADirectory`, `fileDamaged`.
  public func contents(at path: String) throws -> [UInt8] {
    let path = try StorePath(path)
    return try reader.withWrittenBackSnapshot { try FileReading(store: store).contents(at: path, in: $0) }
  }

  /// Reads a whole file into memory that `allocate` returns for a number of bytes. Throws the
  /// errors of ``contents(at:)``.
  public func read(_ path: String, allocate: (Int) throws -> UnsafeMutableRawBufferPointer) throws {
    let path = try StorePath(path)
    try reader.withWrittenBackSnapshot {
      try FileReading(store: store).read(path, in: $0, allocate: allocate)
    }
  }

  /// Reads a file in order, in pieces of at most 1 MiB. An error thrown by `body` ends the reading.
  public func read(_ path: String, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
    try read(path, control: BulkControl(), begin: { _ in }, body)
  }

  /// Reads a file in order, in pieces of at most 1 MiB. `begin` first receives the file's number of
  /// bytes. An error thrown by either closure ends the reading. Throws `noSuchFile`,
  /// `isADirectory`, `cancelled`, and `fileDamaged` after `body` has received all segments before
  /// the damaged one.
  public func read(
    _ path: String, control: BulkControl, begin: (UInt64) throws -> Void,
    _ body: (UnsafeRawBufferPointer) throws -> Void
  ) throws {
    let path = try StorePath(path)
    try reader.withWrittenBackSnapshot {
      try FileReading(store: store).read(path, in: $0, control: control, begin: begin, body)
    }
  }

  /// Reads bytes from `offset` on and returns their number. If it throws, `buffer` is unchanged.
  public func read(
    _ path: String, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer
  ) throws -> Int {
    let path = try StorePath(path)
    var count = 0
    try reader.withWrittenBackSnapshot { records in
      try FileReading(store: store).withReader(path, in: records) {
        count = try $0.read(at: offset, into: buffer)
      }
    }
    return count
  }

  // MARK: Bulk

  /// Copies a file, or a directory with everything in it, to the native file system. Each file
  /// appears under its name when it is complete; if the export fails, unfinished files are removed.
  /// Existing files are replaced if `replacing` is set. A symbolic link at `source` itself is
  /// followed; a link below it becomes a native link with the target that it has in the container.
  ///
  /// Files receive the stored permissions, without set-id and sticky bits and the write permission
  /// for others, and reduced by the process's umask. Throws `fileDamaged` and `tableDamaged`, below
  /// a directory only without ``BulkControl/skipping``.
  @discardableResult
  public func exportItem(
    _ source: String, to native: String, replacing: Bool = true, control: BulkControl = BulkControl()
  ) throws -> BulkReceipt {
    let path = try StorePath(source)
    return try reader.withWrittenBackSnapshot {
      try Export(store: store, control: control).run(path, to: native, replacing: replacing, in: $0)
    }
  }

  /// Copies inside the container as ``Container/copy(_:to:replacing:makingParents:control:)`` does, or to another one; then extended
  /// attributes stay behind.
  package func copy(
    _ source: String, into target: Container, to destination: String, replacing: Bool = false,
    makingParents: Bool = false, control: BulkControl = BulkControl()
  ) throws {
    let (from, to) = (try StorePath(source), try target.writablePath(destination))
    try reader.withWrittenBackSnapshot(naming: from) {
      try Copying(store: store, target: target.store, control: control)
        .run(from, to: to, replacing: replacing, makingParents: makingParents, in: $0)
    }
  }

  /// Delivers files and folders to the inbox of another container, as
  /// `/Inbox/<sender>/<time>/<original path>`. Each file is decrypted here and encrypted there,
  /// segment by segment, in parallel. One commit delivers either everything or nothing.
  ///
  /// Every attachment is looked up before anything is copied. Throws `noSuchFile`, `invalidName`
  /// for a sender that is no name, `fileDamaged` with the source's path, `diskFull`, `cancelled`,
  /// `readOnly`.
  public func send(
    _ attachments: [String], to target: Container, sender: String, options: SendOptions = SendOptions(),
    control: BulkControl = BulkControl()
  ) throws -> Receipt {
    let sending = try Sending(
      attachments, from: store, to: target.store, sender: sender, options: options, control: control)
    if let earlier = try sending.earlierReceipt() { return earlier }
    return try reader.withWrittenBackSnapshot { try sending.run(in: $0) }
  }

  /// Copies the container in its encrypted form to a new directory; the same keys open the copy.
  /// Works while the container is in use, in this or another process, and contains the state of the
  /// moment in which the backup began. The contents are copied without being opened:
  /// ``verify(control:)`` checks whether they are intact.
  ///
  /// A backup that was killed and left files at `path` is replaced. Throws `alreadyExists` if there
  /// is anything else, `locked` while another backup is made there, `diskFull`, `cancelled`; then
  /// nothing is left at `path`.
  @discardableResult
  public func backup(to path: String, control: BulkControl = BulkControl()) throws -> BackupReceipt {
    guard mode == .readWrite else { return try Backup(store: store).run(to: path, control: control) }
    let snapshot = try reader.snapshot()
    defer { try? snapshot.close() }
    return try snapshot.backup(to: path, control: control)
  }

  // MARK: State

  /// Opens everything that is live: both copies of the superblock and of the catalog, every journal
  /// record, table block and segment; and checks that the catalog is consistent. Damage is
  /// reported, not thrown. Changes nothing. For a container that is open for writing, second
  /// copies, journals and unknown files are not checked, because they change during the check.
  public func verify(control: BulkControl = BulkControl()) throws -> VerifyReport {
    let verification = Verification(store: store)
    return try store.namingPath(store.place) {
      try verification.checkCopies()
      return try reader.withWrittenBackSnapshot(settled: true) { try verification.report($0, control) }
    }
  }

  public func info() throws -> ContainerInfo {
    try store.namingPath(store.place) {
      try reader.withWrittenBackSnapshot { try ContainerInfo(store, $0) }
    }
  }

  /// Free space of the file system, and the number of files in the container. Throws `ioFailed`.
  public func statistics() throws -> ContainerStatistics { try ContainerStatistics(store) }
}
