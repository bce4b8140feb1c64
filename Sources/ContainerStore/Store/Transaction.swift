import EncryptedFile

/// A set of changes that become visible together or not at all. It exists only while the catalog's
/// lock is held.
final class Transaction: CatalogReading {
  /// The state before the changes.
  private(set) var base: CatalogSnapshot
  /// New values, or nil for deletions.
  private(set) var staged = ChangeMap()
  private(set) var added: [Extent] = []
  private(set) var removed: [Extent] = []
  /// A file that has lost its last name.
  struct DroppedFile {
    var file: UInt64
    /// All stored extents of the file.
    var extents: [Extent]
    /// The extents that were removed with the file; pins keep the others.
    var removed: [Extent]
  }

  /// Runs that only pins kept and that no pin keeps any more.
  struct UnpinnedRuns {
    var file: UInt64
    var extents: [Extent]
  }

  /// A run that was given other offsets, in pieces.
  struct MovedRun {
    var file: UInt64
    var old: Extent
    var runs: [Extent]
  }

  private(set) var dropped: [DroppedFile] = []
  private(set) var unpinned: [UnpinnedRuns] = []
  private(set) var moved: [MovedRun] = []
  /// Closures to run when the transaction can no longer fail, before its changes are visible.
  private var whenApplied: [() -> Void] = []
  let now = Clock.wallNanoseconds()
  /// Whether no caller requested the changes: maintenance does not count as use of the container.
  var isMaintenance = false
  private var kindsThere: [CatalogKey.Kind: Bool] = [:]
  let epoch: UInt32
  private(set) var nextFile: UInt64

  init(base: CatalogSnapshot, epoch: UInt32, nextFile: UInt64) {
    self.base = base
    self.epoch = epoch
    self.nextFile = nextFile
  }

  /// Releases the catalog to which the changes are about to be applied, so that it is not copied.
  func finish() { base = CatalogSnapshot() }

  /// Adds a closure to run when the transaction can no longer fail, before its changes are visible.
  func whenApplied(_ body: @escaping () -> Void) { whenApplied.append(body) }

  func runWhenApplied() { for body in whenApplied { body() } }

  /// An id for a new file.
  func takeFileID() -> UInt64 {
    defer { nextFile += 1 }
    return nextFile
  }

  func value(_ key: CatalogKey) throws -> [UInt8]? {
    if let change = staged[key] { return change }
    return try base.value(key)
  }

  /// Does nothing: a transaction uses what is stored.
  func requireStored(_ file: UInt64) {}

  func values(_ keys: [CatalogKey]) throws -> [[UInt8]?] { try keys.map(value) }

  func cursor(from key: CatalogKey) throws -> MergedCursor {
    try base.cursor(from: key, under: staged)
  }

  func put(_ key: CatalogKey, _ value: [UInt8]) { staged.put(key, value) }
  func delete(_ key: CatalogKey) { staged.put(key, nil) }

  func put(_ file: UInt64, _ inode: Inode) { put(.inode(file), inode.encoded) }

  /// Whether the changes may be made on a full disk: they give space back.
  func fitsFullDisk(_ addsSegments: Bool) -> Bool {
    isMaintenance || staged.count == 0 || !addsSegments && (staged.givesBack || !removed.isEmpty)
  }

  // MARK: Structure

  /// Adds a name to a directory, and sets the directory's dates.
  func link(_ parent: UInt64, _ name: FileName, to file: UInt64, kind: FileKind) throws {
    put(.entry(parent: parent, name: name), DirectoryEntry(kind: kind, file: file).encoded)
    try touch(parent)
  }

  func unlink(_ parent: UInt64, _ name: FileName) throws {
    delete(.entry(parent: parent, name: name))
    try touch(parent)
  }

  private func touch(_ directory: UInt64) throws {
    var inode = try inode(directory)
    inode.modified = now
    inode.changed = now
    put(directory, inode)
  }

  func makeDirectory(_ parent: UInt64, _ name: FileName, id: UInt64, permissions: UInt16) throws {
    let secret = [UInt8](repeating: 0, count: Inode.secretByteCount)
    put(id, Inode(kind: .directory, permissions: permissions, now: now, epoch: epoch, secret: secret))
    try link(parent, name, to: id, kind: .directory)
  }

  /// Puts a file's inode and extents.
  func putFile(_ id: UInt64, _ inode: Inode, extents: [Extent]) {
    var inode = inode
    inode.firstExtent = extents.first
    put(id, inode)
    for extent in extents.dropFirst() { put(.extent(file: id, start: extent.start), extent.encodedValue) }
    added += extents
  }

  /// Puts the inode of a file that has grown by more runs after its others.
  func extend(_ id: UInt64, _ inode: Inode, by extents: [Extent]) {
    var inode = inode
    var rest = extents[...]
    if inode.firstExtent == nil { inode.firstExtent = rest.popFirst() }
    put(id, inode)
    for extent in rest { put(.extent(file: id, start: extent.start), extent.encodedValue) }
    added += extents
  }

  /// Replaces a run of a file by the same segments at other offsets. Returns false, and changes
  /// nothing, when the file no longer has exactly this run, or when it is pinned.
  func moveExtent(of file: UInt64, from old: Extent, to runs: [Extent]) throws -> Bool {
    guard let bytes = try value(.inode(file)), var inode = try? Inode(bytes), let first = inode.firstExtent
    else { return false }
    // The run may have been pinned since the slab was chosen.
    if try isPinned(old, of: file) { return false }
    if first.start == old.start {
      guard first == old else { return false }
      inode.firstExtent = runs[0]
      put(file, inode)
    } else {
      let key = CatalogKey.extent(file: file, start: old.start)
      guard try value(key) == old.encodedValue else { return false }
      put(key, runs[0].encodedValue)
    }
    for run in runs.dropFirst() { put(.extent(file: file, start: run.start), run.encodedValue) }
    removed.append(old)
    added += runs
    moved.append(MovedRun(file: file, old: old, runs: runs))
    return true
  }

  /// Whether there is any record of a type. The catalog is searched once for each type.
  private func hasAny(_ kind: CatalogKey.Kind) throws -> Bool {
    if let known = kindsThere[kind] { return known }
    let first = CatalogKey.all(kind)
    var cursor = try cursor(from: first)
    let found = try cursor.nextLive().map { $0.key.hasPrefix(first) } ?? false
    kindsThere[kind] = found
    return found
  }

  /// Removes a directory without entries, with everything that belongs to it.
  func dropDirectory(_ id: UInt64) throws {
    try dropAttributes(id)
    if try hasAny(.staging) { delete(.staging(id)) }
    delete(.inode(id))
  }

  /// Removes one name of a file. The last name removes the file with its contents and key.
  func dropFile(_ id: UInt64) throws {
    var inode = try inode(id)
    if inode.linkCount > 1 {
      inode.linkCount -= 1
      inode.changed = now
      put(id, inode)
      return
    }
    let extents = try extents(id, inode)
    dropped.append(DroppedFile(file: id, extents: extents, removed: try giveUp(extents, of: id)))
    for extent in extents {
      if extent.start != inode.firstExtent?.start { delete(.extent(file: id, start: extent.start)) }
    }
    try dropAttributes(id)
    delete(.inode(id))
  }

  func putStaging(_ directory: UInt64, _ value: [UInt8]) {
    put(.staging(directory), value)
    kindsThere[.staging] = true
  }

  // MARK: Pins

  /// Removes runs that a file no longer has, except for what a pin needs. Returns the removed runs.
  private func giveUp(_ extents: [Extent], of file: UInt64) throws -> [Extent] {
    let rest = try hasAny(.pinOfFile) ? unpinned(extents, of: file) : extents
    removed += rest
    return rest
  }

  /// Records runs that lost a pin and that neither the file nor another pin needs.
  func letGo(_ extents: [Extent], of file: UInt64) {
    if !extents.isEmpty { unpinned.append(UnpinnedRuns(file: file, extents: extents)) }
  }

  /// Whether a pin needs any part of a run.
  func isPinned(_ run: Extent, of file: UInt64) throws -> Bool {
    try hasAny(.pinOfFile) && unpinned([run], of: file) != [run]
  }

  // MARK: Extended attributes

  func dropAttributes(_ file: UInt64) throws {
    guard try hasAny(.attribute) else { return }
    for (key, _) in try records(.attributes(file: file)) { delete(key) }
  }

  /// Sets an extended attribute; nil removes it.
  func putAttribute(of file: UInt64, _ name: [UInt8], _ value: [UInt8]?) {
    let key = CatalogKey.attribute(file: file, name: name)
    if let value { put(key, value) } else { delete(key) }
    kindsThere[.attribute] = true
  }

  func copyAttributes(of file: UInt64, to copy: UInt64) throws {
    guard try hasAny(.attribute) else { return }
    for (key, value) in try records(.attributes(file: file)) {
      putAttribute(of: copy, Array(key.bytes.dropFirst(9)), value)
    }
  }

  /// Puts a file's inode and the extents that changed.
  func exchange(_ id: UInt64, _ inode: Inode, _ changes: [ExtentMap.Change], storing stored: [Extent]) throws
  {
    put(id, inode)
    for change in changes {
      for start in change.deletes { delete(.extent(file: id, start: start)) }
      for extent in change.puts { put(.extent(file: id, start: extent.start), extent.encodedValue) }
    }
    _ = try giveUp(changes.flatMap(\.removed), of: id)
    added += stored
  }
}
