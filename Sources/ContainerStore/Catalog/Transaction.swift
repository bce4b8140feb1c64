import EncryptedFile

/// Changes that become visible together or not at all. Exists only while the catalog's lock is held.
final class Transaction: CatalogReading {
  /// The state before.
  private(set) var base: CatalogSnapshot
  /// New values, and nil for what is deleted.
  private(set) var staged = ChangeMap()
  private(set) var added: [Extent] = []
  private(set) var removed: [Extent] = []
  /// Files whose last name went, what they were stored as, and what of that went with it: pins keep the rest.
  private(set) var dropped: [(file: UInt64, extents: [Extent], removed: [Extent])] = []
  /// What pins alone kept, and no longer do.
  private(set) var unpinned: [(file: UInt64, extents: [Extent])] = []
  /// Called when the changes are certain, before anybody can see them.
  private var whenApplied: [() -> Void] = []
  let now = Clock.wallNanoseconds()
  /// Nobody asked for it: it says nothing about whether the container is in use.
  var isMaintenance = false
  private var kindsThere: [CatalogKey.Kind: Bool] = [:]
  let epoch: UInt32
  private(set) var nextFile: UInt64

  init(base: CatalogSnapshot, epoch: UInt32, nextFile: UInt64) {
    self.base = base
    self.epoch = epoch
    self.nextFile = nextFile
  }

  /// Lets go of the catalog that the changes are about to be applied to, so that it is not copied.
  func finish() { base = CatalogSnapshot() }

  /// Has `body` called when nothing can fail any more, before anybody sees the changes.
  func whenApplied(_ body: @escaping () -> Void) { whenApplied.append(body) }

  func tellApplied() { for body in whenApplied { body() } }

  /// An id for a new file.
  func takeFileID() -> UInt64 {
    defer { nextFile += 1 }
    return nextFile
  }

  func value(_ key: CatalogKey) throws -> [UInt8]? {
    if let change = staged[key] { return change }
    return try base.value(key)
  }

  func values(_ keys: [CatalogKey]) throws -> [[UInt8]?] { try keys.map(value) }

  func cursor(from key: CatalogKey) throws -> MergedCursor {
    try base.cursor(from: key, under: staged)
  }

  func put(_ key: CatalogKey, _ value: [UInt8]) { staged.put(key, value) }
  func delete(_ key: CatalogKey) { staged.put(key, nil) }

  func put(_ file: UInt64, _ inode: Inode) { put(.inode(file), inode.encoded) }

  // MARK: Structure

  /// Puts a name into a directory, whose date changes.
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

  /// The directory that `names` lead to, made where it is missing, with everything on the way; `permissions` are for itself, the
  /// attributes for all that are made.
  func directory(
    _ names: some Collection<FileName>, path: String, permissions: UInt16 = 0o700,
    attributes: AttributeChanges = AttributeChanges()
  ) throws -> UInt64 {
    var current = rootFileID
    for (i, name) in names.enumerated() {
      if let entry = try entry(current, name) {
        guard entry.kind == .directory else { throw ContainerError(.notADirectory, path: path) }
        current = entry.file
      } else {
        let id = takeFileID()
        try makeDirectory(
          current, name, id: id, permissions: i == names.count - 1 ? permissions : 0o700)
        try apply(attributes, to: id)
        current = id
      }
    }
    return current
  }

  /// Puts a file's inode and extents.
  func putFile(_ id: UInt64, _ inode: Inode, extents: [Extent]) {
    var inode = inode
    inode.firstExtent = extents.first
    put(id, inode)
    for extent in extents.dropFirst() { put(.extent(file: id, start: extent.start), extent.encodedValue) }
    added += extents
  }

  /// Puts the inode of a file that has grown by one more run behind its others.
  func extend(_ id: UInt64, _ inode: Inode, by extent: Extent) {
    put(id, inode)
    put(.extent(file: id, start: extent.start), extent.encodedValue)
    added.append(extent)
  }

  /// The books of stored runs, when some were exchanged for others.
  func replace(_ old: Extent, with new: [Extent]) {
    removed.append(old)
    added += new
  }

  /// Whether there is any record of a type, which is looked up once.
  private func hasAny(_ kind: CatalogKey.Kind) throws -> Bool {
    if let known = kindsThere[kind] { return known }
    let first = CatalogKey.all(kind)
    var cursor = try cursor(from: first)
    let found = try cursor.nextLive().map { $0.key.hasPrefix(first) } ?? false
    kindsThere[kind] = found
    return found
  }

  /// Takes a directory without entries, with all that belongs to it.
  func dropDirectory(_ id: UInt64) throws {
    try dropAttributes(id)
    if try hasAny(.staging) { delete(.staging(id)) }
    delete(.inode(id))
  }

  /// Takes one name from a file; when it was the last, the file goes with its contents and key.
  func dropFile(_ id: UInt64) throws {
    var inode = try inode(id)
    if inode.linkCount > 1 {
      inode.linkCount -= 1
      inode.changed = now
      put(id, inode)
      return
    }
    let extents = try extents(id, inode)
    dropped.append((id, extents, try giveUp(extents, of: id)))
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

  /// A file no longer has these runs: what no pin needs is removed, and returned.
  private func giveUp(_ extents: [Extent], of file: UInt64) throws -> [Extent] {
    let rest = try hasAny(.pinOfFile) ? unpinned(extents, of: file) : extents
    removed += rest
    return rest
  }

  /// A pin has gone, and neither the file nor another one needs these runs.
  func letGo(_ extents: [Extent], of file: UInt64) {
    if !extents.isEmpty { unpinned.append((file, extents)) }
  }

  /// Whether a pin needs a part of a run of a file.
  func isPinned(_ run: Extent, of file: UInt64) throws -> Bool {
    try hasAny(.pinOfFile) && unpinned([run], of: file) != [run]
  }

  // MARK: Extended attributes

  func dropAttributes(_ file: UInt64) throws {
    guard try hasAny(.attribute) else { return }
    for (key, _) in try records(.attributes(file: file)) { delete(key) }
  }

  /// Nil removes it.
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

  /// Puts a file's inode and those of its extents that changed.
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
