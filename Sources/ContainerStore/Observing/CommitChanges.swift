/// The effect of a commit's records on the file tree, independent of the operation that made the
/// commit. Valid as long as the transaction has its base state.
struct CommitChanges {
  /// A name that refers to another file than before.
  struct Entry {
    var place: CatalogPlace
    var old: DirectoryEntry?
    var new: DirectoryEntry?
  }

  /// The parts of a file that changed.
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
  /// The new locations of directories that are new or were moved to another parent or name.
  private(set) var newPlaces: [UInt64: CatalogPlace] = [:]
  /// Directories that are no longer at their old location.
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
      // The other kinds do not belong to a file that a path leads to.
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

  /// Ids of the files with records of their own in the commit, in ascending order.
  var files: [UInt64] { records.keys.sorted() }

  /// The changed parts of a file that exists both before and after the commit.
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
    // Otherwise the new date follows from another change that is reported.
    if old.modified != new.modified, effect.isEmpty, !parents.contains(file) { effect = .attributes }
    return effect
  }

  private static func inode(_ bytes: [UInt8]) throws -> Inode {
    try Transaction.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
  }
}
