/// What the records of a commit do to the tree, whoever made it. Lives as long as the transaction knows the state before.
struct CommitChanges {
  /// A name that names something else than before.
  struct Entry {
    var place: CatalogPlace
    var old: DirectoryEntry?
    var new: DirectoryEntry?
  }

  /// What of a file has another value.
  struct Effect: OptionSet {
    let rawValue: UInt8
    static let contents = Effect(rawValue: 1)
    static let attributes = Effect(rawValue: 2)
  }

  private struct Records: OptionSet {
    let rawValue: UInt8
    static let inode = Records(rawValue: 1)
    static let extents = Records(rawValue: 2)
    static let attributes = Records(rawValue: 4)
  }

  private(set) var entries: [Entry] = []
  /// Where directories are that were put into another one, or are new.
  private(set) var newPlaces: [UInt64: CatalogPlace] = [:]
  /// Directories that are not any more where they were.
  private(set) var movedAway: Set<UInt64> = []
  private var parents: Set<UInt64> = []
  private var records: [UInt64: Records] = [:]
  private let transaction: Transaction

  init(_ transaction: Transaction) throws {
    self.transaction = transaction
    let staged = transaction.staged
    try staged.visit { key, value in
      switch key.kind {
      case .entry: try addEntry(key, value)
      case .inode: add(.inode, key)
      case .extent: add(.extents, key)
      case .attribute: add(.attributes, key)
      // What concerns no file that a path leads to.
      default: break
      }
    }
  }

  private mutating func add(_ kind: Records, _ key: CatalogKey) {
    guard let file = key.number(at: 1) else { return }
    records[file, default: []].insert(kind)
  }

  private mutating func addEntry(_ key: CatalogKey, _ value: [UInt8]?) throws {
    let before = try transaction.base.value(key)
    guard before != value else { return }
    let entry = Entry(
      place: try CatalogPlace(key), old: try Self.decoded(before), new: try Self.decoded(value))
    parents.insert(entry.place.parent)
    guard entry.old?.file != entry.new?.file else { return }
    entries.append(entry)
    if let old = entry.old, old.kind == .directory { movedAway.insert(old.file) }
    if let new = entry.new, new.kind == .directory { newPlaces[new.file] = entry.place }
  }

  private static func decoded(_ value: [UInt8]?) throws -> DirectoryEntry? {
    try value.map {
      try Transaction.decode($0) { bytes throws(MalformedBytes) in try DirectoryEntry(bytes) }
    }
  }

  /// Files with records of their own in the commit, by their ids.
  var files: [UInt64] { records.keys.sorted() }

  /// What is different about a file that was there before and still is.
  func effect(on file: UInt64) throws -> Effect {
    guard let records = records[file], let before = try transaction.base.value(.inode(file)),
      let after = try transaction.value(.inode(file))
    else { return [] }
    let old = try Self.inode(before)
    let new = try Self.inode(after)
    var effect: Effect = []
    if records.contains(.extents) || old.size != new.size || old.firstExtent != new.firstExtent
      || old.contentVersion != new.contentVersion || old.target != new.target
    {
      effect.insert(.contents)
    }
    if records.contains(.attributes) || old.permissions != new.permissions || old.created != new.created
      || old.linkCount != new.linkCount
    {
      effect.insert(.attributes)
    }
    // Otherwise the date follows from what is told anyhow.
    if old.modified != new.modified, effect.isEmpty, !parents.contains(file) { effect = .attributes }
    return effect
  }

  private static func inode(_ bytes: [UInt8]) throws -> Inode {
    try Transaction.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
  }
}

/// A name in a directory.
struct CatalogPlace: Hashable {
  var parent: UInt64
  var name: FileName

  init(parent: UInt64, name: FileName) {
    self.parent = parent
    self.name = name
  }

  /// Of a record of type `10`.
  init(_ key: CatalogKey) throws {
    guard let parent = key.number(at: 1), let name = FileName(bytes: Array(key.bytes.dropFirst(9))) else {
      throw ContainerError(.catalogDamaged, detail: "a directory entry with an impossible name")
    }
    self.init(parent: parent, name: name)
  }
}
