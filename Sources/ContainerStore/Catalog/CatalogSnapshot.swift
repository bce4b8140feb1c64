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

/// Records of several sources in the order of their keys. Of records with one key, only the newest
/// source's is returned.
struct MergedCursor {
  /// A sequence of records, read from front to back.
  final class Source {
    private enum Row {
      case map(ChangeMap, ChangeMap.Position)
      case table(TableFile, TableFile.Position)
    }
    private var row: Row
    /// The record at the front; nil at the end.
    fileprivate(set) var front: (key: CatalogKey, value: [UInt8]?)?

    init(_ map: ChangeMap, from key: CatalogKey) { row = .map(map, map.position(of: key)) }

    init(_ table: TableFile, from key: CatalogKey, _ mode: TableFile.ReadMode = .cached) throws {
      row = .table(table, try table.position(of: key, mode))
    }

    fileprivate func advance() throws {
      switch row {
      case .map(let map, var position):
        front = map.next(&position).map { ($0.key, $0.value) }
        row = .map(map, position)
      case .table(let table, var position):
        front = try table.next(&position)
        row = .table(table, position)
      }
    }
  }

  /// The sources that are not at their end, newest first.
  private var sources: [Source]

  init(_ sources: [Source]) throws {
    for source in sources { try source.advance() }
    self.sources = sources.filter { $0.front != nil }
  }

  /// The next record; nil at the end. A nil value is a tombstone.
  mutating func next() throws -> (key: CatalogKey, value: [UInt8]?)? {
    guard var newest = sources.first else { return nil }
    if sources.count == 1 {
      let record = newest.front
      try advance(newest)
      return record
    }
    for source in sources.dropFirst() where source.front!.key < newest.front!.key { newest = source }
    let record = newest.front!
    for source in sources where source !== newest && source.front!.key == record.key { try advance(source) }
    try advance(newest)
    return record
  }

  mutating func nextLive() throws -> (key: CatalogKey, value: [UInt8])? {
    while let (key, value) = try next() {
      if let value { return (key, value) }
    }
    return nil
  }

  private mutating func advance(_ source: Source) throws {
    try source.advance()
    if source.front == nil { sources.removeAll { $0 === source } }
  }
}
