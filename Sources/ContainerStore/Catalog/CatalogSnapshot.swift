import EncryptedFile

/// The catalog at one moment: memtables over the tables of the last checkpoint.
struct CatalogSnapshot: CatalogReading {
  /// The memtable: changes since the tables, or since the frozen changes.
  var overlay = ChangeMap()
  /// The frozen memtable: changes that are being written to a table. They are older than the
  /// overlay.
  var frozen: ChangeMap?
  /// The tables, newest first.
  var tables: [TableFile] = []
  /// Files whose newest contents could not be stored: the catalog has older ones.
  var unstored: Set<UInt64> = []
  /// The mode in which cursors read tables.
  var readMode = TableFile.ReadMode.cached

  func value(_ key: CatalogKey) throws -> [UInt8]? {
    if let change = overlay[key] { return change }
    if let change = frozen?[key] { return change }
    for table in tables {
      switch try table.find(key) {
      case .absent: continue
      case .deleted: return nil
      case .value(let value): return value
      }
    }
    return nil
  }

  func values(_ keys: [CatalogKey]) throws -> [[UInt8]?] {
    var finders = tables.map { TableFile.Finder($0) }
    return try keys.map { key in
      if let change = overlay[key] { return change }
      if let change = frozen?[key] { return change }
      for i in finders.indices {
        switch try finders[i].find(key) {
        case .absent: continue
        case .deleted: return nil
        case .value(let value): return value
        }
      }
      return nil
    }
  }

  func requireStored(_ file: UInt64) throws {
    if unstored.contains(file) { throw ContainerError(.diskFull) }
  }

  func cursor(from key: CatalogKey) throws -> MergedCursor { try cursor(from: key, under: nil) }

  /// A cursor with `changes` on top, which are newer than the snapshot.
  func cursor(from key: CatalogKey, under changes: ChangeMap?) throws -> MergedCursor {
    var sources: [MergedCursor.Source] = []
    if let changes { sources.append(MergedCursor.Source(changes, from: key)) }
    sources.append(MergedCursor.Source(overlay, from: key))
    if let frozen { sources.append(MergedCursor.Source(frozen, from: key)) }
    for table in tables { sources.append(try MergedCursor.Source(table, from: key, readMode)) }
    return try MergedCursor(sources)
  }
}
