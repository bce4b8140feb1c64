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
